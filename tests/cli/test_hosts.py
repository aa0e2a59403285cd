"""``hosts``, ``status``, ``uninstall`` and ``doctor`` as a user sees them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from toy_host import ToyHost

from srhpm_plugin.cli._installs import check_installations
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostModel, Installation
from srhpm_plugin.install.state import installs_dir, records
from srhpm_plugin.install.trouble import shown

Shell = Callable[..., tuple[int, str, str]]


def test_hosts(toy: ToyHost, shell: Shell) -> None:
    code, out, _ = shell("hosts")
    assert code == 0
    assert (
        f"Toy Host 1.0  {toy.root}\n"
        "  in place of its server; type: srhpm-plugin install --host toy\n"
    ) in out
    rows = json.loads(shell("hosts", "--json")[1])
    (row,) = [r for r in rows["hosts"] if r["host"] == "toy"]
    assert (row["version"], row["root"], row["installable"]) == ("1.0", str(toy.root), True)
    shell("install", "--host", "toy")
    assert "  SR-HPM is in it; take it out with: srhpm-plugin uninstall" in shell("hosts")[1]


def test_the_command_for_each_copy(toy: ToyHost, shell: Shell, tmp_path: Path) -> None:
    second = tmp_path / "second copy"
    found = toy.find

    def find(path: Path | None) -> Iterator[Installation]:
        yield from (replace(f, root=r) for r in (toy.root, second) for f in found(path))

    toy.find = find  # type: ignore[method-assign]
    commands = [line.partition("type: ")[2] for line in shell("hosts")[1].splitlines()]
    typed = ["srhpm-plugin", "install", "--host", "toy"]
    assert shown(typed) in commands
    assert shown([*typed, "--path", str(second)]) in commands


def test_hosts_that_cannot_or_are_not_there(toy: ToyHost, shell: Shell) -> None:
    toy.installable = False
    assert "  not possible: it is too old\n" in shell("hosts")[1]
    (toy.root / "version").unlink()
    out = shell("hosts")[1]
    assert "Toy Host (toy)" in out.rpartition("Not found here: ")[2]
    assert "srhpm-plugin install --host NAME --path DIR\n" in out

    def find(path: object) -> None:
        raise UserError("cannot look", "the disk is gone", "mount it")

    toy.find = find  # type: ignore[method-assign, assignment]
    code, out, _ = shell("hosts")
    assert code == 0
    assert "Toy Host: cannot look: the disk is gone; mount it\n" in out


def test_a_copy_named_by_path_is_known_once_installed(toy: ToyHost, shell: Shell) -> None:
    found = toy.find
    toy.find = lambda path: found(path) if path else iter(())  # type: ignore[method-assign]
    toy.listed = (HostModel("one:2b", toy.root / "one.gguf"),)
    assert "Toy Host (toy)" in shell("hosts")[1].rpartition("Not found here: ")[2]
    assert "No models" in shell("models", "--host", "toy")[1]
    assert shell("install", "--host", "toy", "--path", toy.root)[0] == 0
    out = shell("hosts")[1]
    assert f"Toy Host 1.0  {toy.root}\n  SR-HPM is in it; " in out
    assert "Toy Host (toy)" not in out
    assert "one:2b" in shell("models", "--host", "toy")[1]
    toy.server.with_name(toy.server.name + ".srhpm").unlink()
    again = shown(["srhpm-plugin", "install", "--host", "toy", "--path", str(toy.root)])
    assert f"type: {again}\n" in shell("hosts")[1]
    assert shell("uninstall", "--host", "toy")[0] == 0
    assert str(toy.root) not in shell("hosts")[1]


def test_status_of_nothing(shell: Shell) -> None:
    code, out, _ = shell("status")
    assert (code, "srhpm-plugin hosts" in out) == (0, True)
    assert json.loads(shell("status", "--json")[1])["installations"] == []


def test_errors_are_one_line(toy: ToyHost, shell: Shell) -> None:
    code, out, err = shell("install", "--host", "nobody")
    assert (code, out) == (1, "")
    assert err.startswith("error: no host 'nobody': no plugin knows it; choose one of: ")
    assert shell("install")[0] == 2
    assert shell("uninstall", "--host", "nobody")[0] == 1


def test_uninstall_one_of_two_copies(toy: ToyHost, shell: Shell, tmp_path: Path) -> None:
    import shutil

    second = tmp_path / "second"
    shutil.copytree(toy.root, second, symlinks=True)
    assert shell("install", "--host", "toy")[0] == 0
    first, toy.root = toy.root, second
    assert shell("install", "--host", "toy", "--path", second)[0] == 0
    assert len(list(records("toy"))) == 2
    code, out, _ = shell("uninstall", "--host", "toy", "--path", second)
    assert (code, out) == (0, f"SR-HPM is out of Toy Host ({second}).\n")
    assert [r.root for r in records("toy")] == [first]
    said = f"SR-HPM is not in Toy Host at {second}; nothing to do.\nnote: it is in {first}\n"
    assert shell("uninstall", "--host", "toy", "--path", second)[1] == said
    assert shell("uninstall", "--host", "toy")[0] == 0
    assert list(records()) == []


def test_the_home_of_an_installation_is_gone(toy: ToyHost, shell: Shell) -> None:
    shell("install", "--host", "toy")
    shutil.rmtree(os.environ["SRHPM_HOME"])
    (row,) = json.loads(shell("status", "--json")[1])["installations"]
    assert (row["host"], row["root"], row["state"]) == ("toy", str(toy.root), "not known here")
    (check,) = check_installations()
    assert (check.state, check.fix) == ("warning", row["fix"])
    line = f"{toy.root}\n  SR-HPM is in it, put there by no installation known here: "
    assert line in shell("hosts")[1]
    code, _, err = shell(*row["fix"].split()[1:])  # says how to take it out
    assert code == 1
    assert f"move {toy.server.with_name('llama-server.original')} over it" in err


def test_uninstall_dry_run(toy: ToyHost, shell: Shell) -> None:
    shell("install", "--host", "toy")
    code, out, _ = shell("uninstall", "--host", "toy", "--dry-run")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == f"In Toy Host ({toy.root}) this would be done; nothing was changed:"
    kept = toy.server.with_name("llama-server.original")
    assert lines[1] == f"  move {kept} back to {toy.server}, over ours"  # the last step first
    assert f"  put back the original of {toy.root / 'config.yaml'}" in lines
    assert "in place" in shell("status")[1]
    report = json.loads(shell("uninstall", "--host", "toy", "--dry-run", "--json")[1])
    assert report["uninstalled"][0]["operations"] == [line.strip() for line in lines[1:]]


def test_install_dry_run_over_an_installation(toy: ToyHost, shell: Shell) -> None:
    shell("install", "--host", "toy")
    code, out, _ = shell("install", "--host", "toy", "--dry-run")
    assert code == 0
    assert f" back to {toy.server}, over ours\n" in out


def test_doctor_on_installations(toy: ToyHost, shell: Shell, tools: Path, monkeypatch) -> None:
    (check,) = check_installations()
    assert check.ok
    shell("install", "--host", "toy")
    (check,) = check_installations()
    assert (check.name, check.state) == ("in Toy Host", "ok")

    for program in tools.iterdir():
        program.unlink()
    monkeypatch.delenv("SRHPM_SERVER")
    monkeypatch.setattr("srhpm_plugin.native.locate.wheel_build", lambda: None)
    (check,) = check_installations()
    assert (check.state, check.fix) == ("broken", "srhpm-plugin native build")
    assert check.detail == "the server is not built, so Toy Host runs its own server"

    (record,) = records()
    path = record.folder / "journal.jsonl"
    python = json.loads(path.read_bytes().splitlines()[0])["tools"]["python"]
    path.write_bytes(path.read_bytes().replace(python.encode(), b"/gone/python"))
    gone = next(check_installations())
    assert (gone.state, gone.fix) == ("broken", "srhpm-plugin install --host toy")
    assert "its Python /gone/python is gone" in gone.detail

    toy.server.write_bytes(b"new")
    (check,) = check_installations()
    assert (check.state, check.fix) == ("warning", "srhpm-plugin install --host toy")
    assert "wiped by an upgrade" in check.detail


def test_doctor_on_a_state_without_a_journal(shell: Shell, toy: ToyHost) -> None:
    (installs_dir() / "toy-01234567").mkdir(parents=True)
    (check,) = check_installations()
    assert check.state == "broken"
    assert "it stopped before it began" in check.detail
    assert shell("uninstall", "--host", "toy")[0] == 0
    assert list(records()) == []

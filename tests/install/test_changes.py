"""What users and upgrades of the host do to an installation."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from crash import state
from toy_host import ToyHost

from srhpm_plugin.cli.install import command as install
from srhpm_plugin.cli.status import command as status
from srhpm_plugin.cli.uninstall import command as uninstall
from srhpm_plugin.install.operations import MakeFolder, Rename, WriteFile
from srhpm_plugin.install.state import records
from srhpm_plugin.install.transaction import Job
from srhpm_plugin.install.transaction import install as transact


def type_(command: object, *args: str) -> str:
    result = CliRunner().invoke(command, ["--host", "toy", *args])  # type: ignore[arg-type]
    assert result.exit_code == 0, result.exception
    return result.output


def condition() -> tuple[str, str]:
    (row,) = json.loads(CliRunner().invoke(status, ["--json"]).output)["installations"]
    return row["state"], row["detail"]


def original(toy: ToyHost) -> Path:
    return toy.server.with_name("llama-server.original")


def test_in_place(toy: ToyHost) -> None:
    type_(install)
    assert condition() == ("in place", "")
    output = CliRunner().invoke(status, []).output
    assert f"Toy Host 1.0  {toy.root}\n  in place, mode all, since 20" in output


def test_installing_again_takes_in_what_is_new(toy: ToyHost) -> None:
    before = state(toy.root)
    type_(install)
    (toy.root / "lib" / "data.bin").write_bytes(b"new")
    type_(install, "--mode", "select")
    assert (toy.root / "new" / "copy.bin").read_bytes() == b"new"
    type_(uninstall)
    assert state(toy.root).keys() == before.keys()
    assert (toy.root / "lib" / "data.bin").read_bytes() == b"new"


def test_a_file_of_the_users_that_was_changed_is_kept(toy: ToyHost) -> None:
    before = dict(state(toy.root))
    type_(install)
    config = toy.root / "config.yaml"
    config.write_text("key: mine\nsrhpm: yes\n")
    found, detail = condition()
    assert (found, detail) == ("changed by user", f"{config} was changed")
    assert "is in Toy Host 1.0" in type_(install)  # is left alone
    assert config.read_text() == "key: mine\nsrhpm: yes\n"
    kept = config.with_name("config.yaml.before-srhpm")
    output = type_(uninstall)
    assert f"{config} was changed since, so it stays; what it was before us is {kept}\n" in output
    after = dict(state(toy.root))
    assert after.pop("config.yaml")[3] == b"key: mine\nsrhpm: yes\n"
    assert after.pop("config.yaml.before-srhpm") == before.pop("config.yaml")
    assert after == before
    assert list(records()) == []


def test_names_of_kept_files_are_never_taken(toy: ToyHost) -> None:
    type_(install)
    (toy.root / "config.yaml").write_text("mine")
    (toy.root / "config.yaml.before-srhpm").write_text("mine, too")
    assert "config.yaml.before-srhpm-2" in type_(uninstall)
    assert (toy.root / "config.yaml.before-srhpm").read_text() == "mine, too"
    assert (toy.root / "config.yaml.before-srhpm-2").read_bytes() == b"key: value\n"


def test_a_host_that_knows_its_entries_takes_them_out(toy: ToyHost) -> None:
    before = dict(state(toy.root))
    toy.without_us = lambda path, content: content.replace(b"srhpm: yes\n", b"")  # type: ignore
    type_(install)
    (toy.root / "config.yaml").write_bytes(b"key: mine\nsrhpm: yes\nmore: 1\n")
    assert condition()[0] == "changed by user"
    type_(install)  # installs anew: nothing of the user's is in the way
    assert condition() == ("in place", "")
    (toy.root / "config.yaml").write_bytes(b"key: 3\nsrhpm: yes\n")
    assert "only our entries were taken out" in type_(uninstall)
    after = dict(state(toy.root))
    mode, owner, content = after.pop("config.yaml")[1:4]
    assert (mode, owner, content) == (*before.pop("config.yaml")[1:3], b"key: 3\n")
    assert after == before


@pytest.mark.parametrize("answer", [None, ValueError("a bug")])
def test_a_host_that_cannot_tell_its_entries(toy: ToyHost, answer: object) -> None:
    def without_us(path: Path, content: bytes) -> None:
        if answer:
            raise answer  # type: ignore[misc]

    toy.without_us = without_us  # type: ignore[attr-defined]
    type_(install)
    (toy.root / "config.yaml").write_bytes(b"mine")
    assert "what it was before us is" in type_(uninstall)


def test_files_of_ours_that_were_changed_stay(toy: ToyHost) -> None:
    type_(install)
    about = toy.root / "new" / "sub" / "about.txt"
    about.write_text("mine")
    (toy.root / "new" / "other.txt").write_text("mine")
    assert condition() == ("changed by user", f"{about} was changed")
    output = type_(uninstall)
    assert f"note: {about} left: it is no longer what we put there\n" in output
    assert f"note: {about.parent} left: it is not empty\n" in output
    assert sorted(p.name for p in (toy.root / "new").rglob("*")) == [
        "about.txt", "other.txt", "sub",
    ]  # fmt: skip


def test_only_the_mode_was_changed(toy: ToyHost) -> None:
    before = state(toy.root)
    type_(install)
    (toy.root / "config.yaml").chmod(0o600)
    type_(uninstall)
    assert state(toy.root) == before


@pytest.mark.parametrize("everything", [False, True])
def test_files_that_are_gone(toy: ToyHost, everything: bool) -> None:
    type_(install)
    if everything:
        shutil.rmtree(toy.root)
        assert condition()[0] == "host gone"
    else:
        shutil.rmtree(toy.root / "new")
        (toy.root / "config.yaml").unlink()
        toy.server.unlink()
        assert condition()[0] == "wiped by an upgrade"
    output = type_(uninstall)
    assert list(records()) == []
    assert toy.root.exists() != everything
    if not everything:
        assert toy.server.read_bytes() == b"the host's own server\n"
        assert "config.yaml is gone; what it was before us is" in output
        kept = toy.root / "config.yaml.before-srhpm"
        assert kept.read_bytes() == b"key: value\n"
    assert type_(uninstall) == "SR-HPM is not in Toy Host; nothing to do.\n"


def test_an_unfinished_one_of_a_host_that_is_gone(toy: ToyHost) -> None:
    """A command of the host's cannot be taken back without it."""
    type_(install)
    shutil.rmtree(toy.root)
    type_(uninstall)
    assert list(records()) == []


def upgrade(toy: ToyHost, version: str, *, clean: bool) -> None:
    """A new version's files over the old; ``clean``: its folder is removed before."""
    if clean:
        shutil.rmtree(toy.root / "lib")
        (toy.root / "lib").mkdir()
        (toy.root / "lib" / "data.bin").write_bytes(b"newer")
    (toy.root / "version").write_text(version)
    toy.server.unlink(missing_ok=True)
    toy.server.write_bytes(b"server " + version.encode())
    toy.server.chmod(0o755)


@pytest.mark.parametrize("clean", [True, False])
def test_an_upgrade_is_healed(toy: ToyHost, clean: bool) -> None:
    type_(install)
    upgrade(toy, "2.0", clean=clean)
    assert condition() == ("wiped by an upgrade", f"{toy.server} is not ours any more")
    assert "  type: srhpm-plugin install --host toy\n" in CliRunner().invoke(status, []).output
    type_(install)
    assert condition() == ("in place", "")
    assert original(toy).read_bytes() == b"server 2.0"
    type_(uninstall)
    assert toy.server.read_bytes() == b"server 2.0"
    assert not original(toy).exists()
    assert not (toy.root / "new").exists()
    assert (toy.root / "config.yaml").read_bytes() == b"key: value\n"
    assert list(toy.root.rglob("*before-srhpm*")) == []


@pytest.mark.parametrize("clean", [True, False])
def test_uninstalling_after_an_upgrade(toy: ToyHost, clean: bool) -> None:
    type_(install)
    upgrade(toy, "2.0", clean=clean)
    output = type_(uninstall)
    assert toy.server.read_bytes() == b"server 2.0"
    assert not original(toy).exists()  # what the upgrade would have overwritten
    if clean:
        assert f"{toy.server} left: it is no longer what we put there" in output
    else:
        assert f"{toy.server} is newer than what we kept of it: it stays" in output
    assert list(records()) == []


def test_a_server_of_the_users_own(toy: ToyHost) -> None:
    """The host is the same: then neither the user's server nor the host's may be lost."""
    type_(install)
    toy.server.write_bytes(b"built at home")
    assert condition()[0] == "wiped by an upgrade"
    type_(install)
    assert original(toy).read_bytes() == b"built at home"
    kept = original(toy).with_name("llama-server.original.before-srhpm")
    assert kept.read_bytes() == b"the host's own server\n"
    type_(uninstall)
    assert toy.server.read_bytes() == b"built at home"
    assert kept.read_bytes() == b"the host's own server\n"


def test_the_same_version_is_installed_over_us(toy: ToyHost) -> None:
    type_(install)
    toy.server.write_bytes(b"the host's own server\n")
    type_(uninstall)
    assert toy.server.read_bytes() == b"the host's own server\n"
    assert not original(toy).exists()


def test_a_host_that_forgot_us(toy: ToyHost) -> None:
    type_(install)
    toy.registered = lambda found: False  # type: ignore[method-assign, assignment]
    assert condition() == ("wiped by an upgrade", "Toy Host does not name us any more")


def test_the_plugin_of_the_host_is_gone(toy: ToyHost, monkeypatch: pytest.MonkeyPatch) -> None:
    before = state(toy.root)
    type_(install)
    monkeypatch.setattr("srhpm_plugin.plugins.Plugins.hosts", lambda self: {})
    assert condition()[0] == "in place"
    assert type_(uninstall).startswith(f"SR-HPM is out of toy ({toy.root}).\n")
    assert state(toy.root) == before


def test_a_plugin_that_fails_does_not_keep_us_in(toy: ToyHost) -> None:
    before = state(toy.root)
    type_(install)

    def find(path: object) -> None:
        raise ZeroDivisionError

    toy.find = find  # type: ignore[method-assign, assignment]
    type_(uninstall)
    assert state(toy.root) == before


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right of their own there")
def test_a_folder_that_became_a_link(toy: ToyHost, tmp_path: Path) -> None:
    """Nothing is removed through it."""
    type_(install)
    shutil.copytree(toy.root / "new", tmp_path / "elsewhere", symlinks=True)
    shutil.rmtree(toy.root / "new")
    (toy.root / "new").symlink_to(tmp_path / "elsewhere")
    elsewhere = state(tmp_path / "elsewhere")
    assert "its folder is now a link to" in type_(uninstall)
    assert state(tmp_path / "elsewhere") == elsewhere


def test_names_that_nobody_expects(toy: ToyHost, job: Callable[..., Job]) -> None:
    names = ["new\nline", "'quote\"", "a b", "ünï", "-rf", "$(x)", "x" * 250]
    if sys.platform == "win32":
        names = ["a b", "ünï", "-rf", "$(x)"]
    elif sys.platform == "linux":
        names.append(os.fsdecode(b"no unicode \xff"))
    before = state(toy.root)
    toy.operations = lambda tools: [
        step
        for name in names
        for step in (
            MakeFolder(toy.root / "empty" / name),
            WriteFile(toy.root / "empty" / name / name, name.encode("utf-8", "surrogateescape")),
            Rename(toy.root / "empty" / name / name, toy.root / "lib" / name),
        )
    ]
    transact(job())
    assert len(list((toy.root / "lib").iterdir())) == len(names) + 2
    output = type_(uninstall, "--dry-run")
    assert output.count("\n") == 3 * len(names) + 1  # one line each
    type_(uninstall)
    assert state(toy.root) == before


def test_a_damaged_journal(toy: ToyHost) -> None:
    before = state(toy.root)
    type_(install)
    (record,) = records()
    path = record.folder / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b"{half\n", *lines[3:]]))
    assert condition()[0] == "damaged"
    result = CliRunner().invoke(uninstall, ["--host", "toy"])
    assert "line 4 of" in str(result.exception)
    assert "everything else is taken back" in str(result.exception)
    assert state(toy.root) == before
    path.write_bytes(b"nothing of ours\n")
    assert condition()[0] == "damaged"
    result = CliRunner().invoke(uninstall, ["--host", "toy"])
    assert "cannot uninstall" in str(result.exception)
    path.write_bytes(lines[0].replace(b'"v":1', b'"v":2'))
    assert "another version of srhpm-plugin wrote it (2)" in condition()[1]

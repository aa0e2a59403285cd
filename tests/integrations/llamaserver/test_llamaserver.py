"""llama-server's router: a program of ours beside the user's, twins in a file of presets."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostCall, Installation, Tools, Translated
from srhpm_plugin.install.state import read_record, state_folder
from srhpm_plugin.install.transaction import Job, install, uninstall
from srhpm_plugin.integrations.llamaserver import LlamaServerRouter, presets
from srhpm_plugin.plan import HostRequest

HOST = LlamaServerRouter()
EXE = ".exe" if sys.platform == "win32" else ""

PRESETS = """\
version = 1
; for all
[*]
ctx-size = 4096   ; tokens

[qwen]  # the big one
m = {folder}/qwen.gguf
; a comment
load-on-startup = true
alias = big
n-cpu-moe=10

[org/name:Q4_K_M]
LLAMA_ARG_MODEL = {folder}/other.gguf
c = 1024
embeddings = true
[org/from-the-net-GGUF:Q8_0]
jinja = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of presets over two models."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in ("qwen", "other"):
        (folder / f"{name}.gguf").write_bytes(b"GGUF")
    path = tmp_path / "mine" / "models.ini"
    path.parent.mkdir()
    path.write_bytes(PRESETS.format(folder=folder.as_posix()).encode())
    return path


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``llama-server`` on the PATH, and stand-ins for our built programs."""
    folder = tmp_path / "usr" / "bin"
    folder.mkdir(parents=True)
    built = tmp_path / "built"
    built.mkdir()
    places = [folder / "llama-server", built / "llama-server", built / "srhpm-llama-server"]
    for place in places:
        program = place.with_name(place.name + EXE)
        program.write_text(f"#!/bin/sh\n# {place.name}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("SRHPM_SERVER", str(built / f"llama-server{EXE}"))
    return folder / f"llama-server{EXE}"


def found_in(path: Path | None) -> Installation:
    (found,) = HOST.find(path)
    return found


def test_twins(file: Path, install: Callable, tree: Callable, on_path: Path, tools: Tools) -> None:
    before, text = tree(file.parent), file.read_text()
    done = install(HOST, found_in(file), "select")
    assert file.read_text().startswith(text)
    found = presets.sections(file.read_text())
    # The name's tag is read as one word: the mark comes before it.
    assert list(found)[-2:] == ["qwen-srhpm", "org/name-srhpm:Q4_K_M"]
    assert found["qwen-srhpm"].settings == {
        k: v for k, v in found["qwen"].settings.items() if k not in ("alias", "load-on-startup")
    }
    note = Note.parse((tools.state / f"llama-server{EXE}.srhpm").read_bytes())
    assert (note.original, note.router, note.mode) == (on_path, True, "select")
    assert str(tools.state / f"llama-server{EXE}") in done.steps.pick[0]
    assert done.undo() == []
    assert tree(file.parent) == before


def test_the_program_of_the_path(on_path: Path, install: Callable, tools: Tools) -> None:
    found = found_in(None)
    assert found.root == on_path
    done = install(HOST, found, "all")
    note = Note.parse((tools.state / f"llama-server{EXE}.srhpm").read_bytes())
    assert (note.original, note.router, note.mode) == (on_path, True, "all")
    done.undo()
    assert not (tools.state / f"llama-server{EXE}").exists()
    with pytest.raises(UserError, match="names come from"):
        HOST.steps(found, tools, "select")


def test_named_by_path(file: Path, on_path: Path) -> None:
    assert [f.root for f in HOST.find(file.parent)] == [file]
    assert [f.root for f in HOST.find(on_path)] == [on_path]
    assert [f.root for f in HOST.find(on_path.parent)] == [on_path]
    (file.parent / "second.ini").write_text("")
    assert list(HOST.find(file.parent)) == []


def test_nothing_to_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(HOST.find(None)) == []
    assert list(HOST.find(tmp_path)) == []


@pytest.mark.parametrize("mode", ["all", "select"])
def test_as_a_whole(file: Path, on_path: Path, tree: Callable, mode: str) -> None:
    before = tree(file.parent)
    found = found_in(file)
    assert not HOST.registered(found)
    install(Job(HOST, found, mode, file, ["install"]))  # type: ignore[arg-type]
    assert HOST.registered(found)
    folder = state_folder(HOST.name, found.root)
    assert uninstall(read_record(folder, HOST.name), HOST, ["uninstall"]) == ()
    assert not HOST.registered(found)
    assert tree(file.parent) == before
    assert not folder.exists()


def test_a_changed_file(file: Path, install: Callable, on_path: Path) -> None:
    done = install(HOST, found_in(file), "select")
    changed = file.read_text().replace("4096", "8192") + "[mine]\nmodel = x\n"
    file.write_text(changed)
    assert not any("kept" in line for line in done.undo())
    assert "srhpm" not in file.read_text()
    assert list(presets.sections(file.read_text())) == [
        "*", "qwen", "org/name:Q4_K_M", "org/from-the-net-GGUF:Q8_0", "mine"
    ]  # fmt: skip


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n; the end"])
def test_ends(end: str) -> None:
    text = f"[a]{end[:-1] or chr(10)}model = /m/a.gguf{end}"
    twins = presets.with_twins(text, [presets.sections(text)["a"]], "llama-server-router")
    assert list(presets.sections(twins)) == ["a", "a-srhpm"]
    assert (presets.without_us(twins) or "").rstrip() == text.rstrip()


def test_a_name_that_is_taken(file: Path, tools: Tools, on_path: Path) -> None:
    file.write_text("[a]\nmodel = /x\n[a-srhpm]\nmodel = /y\n")
    # The user's own section of that name counts as a twin of ours by its name: none is made of it.
    with pytest.raises(UserError, match="already"):
        HOST.steps(found_in(file), tools, "select")


def test_models(file: Path, install: Callable, on_path: Path) -> None:
    install(HOST, found_in(file), "select")
    models = {m.name: m for m in HOST.models(found_in(file))}
    assert sorted(models) == ["org/name-srhpm:Q4_K_M", "org/name:Q4_K_M", "qwen", "qwen-srhpm"]
    assert (models["qwen"].path.name, models["qwen"].twin) == ("qwen.gguf", False)
    assert models["qwen-srhpm"].twin
    assert models["org/name:Q4_K_M"].ctx == 1024
    assert models["org/name:Q4_K_M"].unfit is not None


@pytest.mark.parametrize(
    ("name", "picked"),
    [("a", False), ("a-srhpm", True), ("o/a-srhpm:Q8_0", True), ("o/a:x-srhpm", False)],
)
def test_the_pick_is_the_name(name: str, picked: bool) -> None:
    request = HostRequest(model=Path("/m/a.gguf"))
    told = HOST.translate(HostCall(HOST.name, ("--alias", name), {}, {}, "select"), request)
    assert isinstance(told, Translated)
    assert (told.model, told.picked) == (name, picked)


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("version: 0.1.2-dev (build 11434, commit 9d77fa172)", "b11434"),
        ("version: 9222 (9a532ae4b)", "b9222"),
        ("version: 0.1.2-dev (build 1, commit 9d77fa172)", "0.1.2-dev"),
        ("what?", None),
    ],
)
def test_its_version(file: Path, on_path: Path, says: str, version: str | None) -> None:
    on_path.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    on_path.chmod(0o755)
    assert [found.version for found in HOST.find(None)] == [version]
    assert [found.version for found in HOST.find(file)] == [version]

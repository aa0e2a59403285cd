"""Registering SR-HPM in a copy and taking it back, on trees as every system lays them out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Tools
from srhpm_plugin.integrations.ollama import Ollama
from srhpm_plugin.integrations.ollama.layout import KEPT, SERVER

HOST = Ollama()
LAYOUTS: dict[str, dict[str, str]] = {
    "usr/local": {},
    "usr": {},
    "Programs/Ollama": {"program": "ollama"},
    "darwin": {"program": "ollama"},
    "a tree of one's own": {},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_there_and_back(
    tmp_path: Path,
    copy: Callable[..., Path],
    install: Callable[..., Any],
    tree: Callable[[Path], Any],
    name: str,
) -> None:
    root = copy(tmp_path / name, **LAYOUTS[name])
    (found,) = HOST.find(root)
    before = tree(root)
    assert not HOST.registered(found)
    installed = install(HOST, found, "all")
    assert HOST.registered(found)
    now = tree(root)
    assert set(now) - set(before) == {f"lib/ollama/{name}" for name in (KEPT, f"{SERVER}.srhpm")}
    assert now[f"lib/ollama/{KEPT}"] == before[f"lib/ollama/{SERVER}"]
    note = Note.parse((found.root / f"{SERVER}.srhpm").read_bytes())
    assert (note.host, note.mode) == ("ollama", "all")
    assert found.root / (note.original or "") == found.root / KEPT
    # Found as before, now that something else lies in the server's place.
    (again,) = HOST.find(root)
    assert again.installable
    assert installed.undo() == []
    assert tree(root) == before


def test_what_ollama_s_scans_see_stays_the_same(
    tmp_path: Path, copy: Callable[..., Path], install: Callable[..., Any]
) -> None:
    """GPU libraries are found by ``*/*ggml-*``, programs by their exact names."""
    root = copy(tmp_path / "tree")
    lib = root / "lib" / "ollama"

    def seen() -> tuple[list[Path], list[str]]:
        programs = [n for n in (SERVER, "llama-quantize", "ollama") if (lib / n).exists()]
        return sorted(lib.glob("*/*ggml-*")), programs

    before = seen()
    (found,) = HOST.find(root)
    install(HOST, found, "all")
    assert seen() == before


def test_an_upgrade_that_wipes_the_folder_is_noticed(
    tmp_path: Path, copy: Callable[..., Path], install: Callable[..., Any]
) -> None:
    root = copy(tmp_path / "tree")
    (found,) = HOST.find(root)
    install(HOST, found, "all")
    shutil.rmtree(root / "lib" / "ollama")  # as install.sh and the installer for Windows do
    assert not HOST.registered(found)
    copy(root, version="0.34.0")
    assert not HOST.registered(found)


def test_a_note_that_is_none_registers_nothing(
    tmp_path: Path, copy: Callable[..., Path], install: Callable[..., Any]
) -> None:
    root = copy(tmp_path / "tree")
    (found,) = HOST.find(root)
    install(HOST, found, "all")
    note = found.root / f"{SERVER}.srhpm"
    for content in (b"", b"version=1\n", b"\xff\xfe", note.read_bytes().replace(b"ollama", b"jan")):
        note.write_bytes(content)
        assert not HOST.registered(found)


def test_a_copy_that_takes_nothing_refuses(
    tmp_path: Path, copy: Callable[..., Path], tools: Tools
) -> None:
    (found,) = HOST.find(copy(tmp_path / "old", server=False))
    with pytest.raises(UserError, match=r"0\.30"):
        HOST.steps(found, tools, "all")

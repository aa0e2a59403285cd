"""Unsloth Studio: a folder of ours to choose in its settings; nothing of Studio's is changed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.host import Tools
from srhpm_plugin.integrations.unsloth import UnslothStudio

HOST = UnslothStudio()
NAME = "llama-server.exe" if sys.platform == "win32" else "llama-server"


@pytest.fixture
def studio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's Studio with its own llama.cpp."""
    root = tmp_path / "user" / ".unsloth"
    (root / "studio").mkdir(parents=True)
    (root / "llama.cpp" / "build" / "bin").mkdir(parents=True)
    (root / "llama.cpp" / "build" / "bin" / NAME).write_text("its own")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "user"))
    monkeypatch.delenv("UNSLOTH_STUDIO_HOME", raising=False)
    monkeypatch.delenv("STUDIO_HOME", raising=False)
    return root


def test_a_folder_to_choose(studio: Path, install: Callable, tree: Callable, tools: Tools) -> None:
    (found,) = HOST.find(None)
    assert found.root == studio
    before = tree(studio)
    done = install(HOST, found, "all")
    assert tree(studio) == before
    note = Note.parse((tools.state / f"{NAME}.srhpm").read_bytes())
    assert note.original == studio / "llama.cpp" / "build" / "bin" / NAME
    assert str(tools.state) in done.steps.pick[0]
    assert "Use bundled" in done.steps.notes[0]
    assert done.undo() == []
    assert not (tools.state / NAME).exists()


def test_a_studio_elsewhere(studio: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    (other / "llama.cpp").mkdir(parents=True)
    (other / "llama.cpp" / NAME).write_text("another")
    monkeypatch.setenv("UNSLOTH_STUDIO_HOME", str(other))
    assert [found.root for found in HOST.find(None)] == [other, studio]
    assert [found.root for found in HOST.find(other)] == [other]
    assert list(HOST.find(tmp_path / "nothing")) == []


def test_without_a_build_of_its_own(studio: Path, install: Callable, tools: Tools) -> None:
    (studio / "llama.cpp" / "build" / "bin" / NAME).unlink()
    (found,) = HOST.find(None)
    assert "no llama.cpp" in found.how
    install(HOST, found, "all")
    assert Note.parse((tools.state / f"{NAME}.srhpm").read_bytes()).original is None


def test_its_version(studio: Path) -> None:
    assert [found.version for found in HOST.find(None)] == [None]
    packages = studio / "studio" / "unsloth_studio" / "lib" / "python3.13" / "site-packages"
    (packages / "unsloth_zoo-2026.8.1.dist-info").mkdir(parents=True)
    (packages / "unsloth-2026.8.3.dist-info").mkdir()
    assert [found.version for found in HOST.find(None)] == ["2026.8.3"]

"""Finding copies of Ollama, and saying which take SR-HPM."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.integrations.ollama import Ollama, layout

HOST = Ollama()
Copy = Callable[..., Path]
needs_sh = pytest.mark.skipif(sys.platform == "win32", reason="the stand-in is a shell script")


@pytest.mark.parametrize(
    ("name", "inner"),
    [
        ("usr/local", {}),
        ("usr", {}),
        ("own tree", {}),
        ("flat", {"program": "ollama"}),
        ("source", {"program": "ollama", "lib": "build/lib/ollama"}),
    ],
)
def test_a_copy_is_found_at_its_path(
    tmp_path: Path, copy: Copy, name: str, inner: dict[str, str]
) -> None:
    root = copy(tmp_path / name, **inner)
    (found,) = HOST.find(root)
    assert found.installable
    assert found.root == root / inner.get("lib", "lib/ollama")
    assert Path(found.facts["program"]) == root / (inner.get("program", "bin/ollama") + layout._EXE)


def test_the_program_or_the_folder_may_be_named(tmp_path: Path, copy: Copy) -> None:
    root = copy(tmp_path / "tree")
    for path in (root / "bin" / layout.PROGRAM, root / "lib" / "ollama"):
        (found,) = HOST.find(path)
        assert (found.root, found.installable) == (root / "lib" / "ollama", True)
        assert "program" in found.facts


@needs_sh
def test_it_is_found_on_path_with_its_version(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy(tmp_path / "opt", version="0.31.2-rc1")
    bin_dir = tmp_path / "links"
    bin_dir.mkdir()
    (bin_dir / "ollama").symlink_to(root / "bin" / "ollama")  # resolved, as Ollama does
    monkeypatch.setenv("PATH", str(bin_dir))
    (found,) = HOST.find(None)
    assert (found.version, found.root) == ("0.31.2-rc1", root / "lib" / "ollama")


def test_the_usual_places(tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not list(HOST.find(None))
    if sys.platform == "win32":
        root = copy(tmp_path / "local" / "Programs" / "Ollama", program="ollama")
    else:
        root = copy(tmp_path / "usr" / "local")
        monkeypatch.setattr(layout, "_BINARIES", (str(tmp_path / "usr" / "local" / "bin"),))
    (found,) = HOST.find(None)
    assert found.root == root / "lib" / "ollama"


def test_a_windows_tree(tmp_path: Path, copy: Copy) -> None:
    root = copy(tmp_path / "Programs" / "Ollama", program="ollama")
    (found,) = HOST.find(root)
    assert found.root == root / "lib" / "ollama"


@needs_sh
@pytest.mark.parametrize("version", ["0.24.0", "0.9.6"])
def test_an_old_one_says_why_not(tmp_path: Path, copy: Copy, version: str) -> None:
    (found,) = HOST.find(copy(tmp_path / "old", version=version, server=False))
    assert not found.installable
    assert version in found.how
    assert "0.30" in found.how
    assert "srhpm-plugin serve --front" in found.how


@needs_sh
def test_an_old_one_without_the_folder(tmp_path: Path) -> None:
    program = tmp_path / "very old" / "bin" / "ollama"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho ollama version is 0.1.20\n")
    program.chmod(0o755)
    (found,) = HOST.find(tmp_path / "very old")
    assert (found.version, found.installable) == ("0.1.20", False)


def test_a_bundle_of_macos_is_left_alone(tmp_path: Path, copy: Copy) -> None:
    app = tmp_path / "Ollama.app"
    inner = app / "Contents" / "Resources"
    copy(inner, program="ollama")
    (app / "Contents" / "Info.plist").write_bytes(
        b'<?xml version="1.0"?><plist version="1.0"><dict>'
        b"<key>CFBundleShortVersionString</key><string>0.33.1</string></dict></plist>"
    )
    (found,) = HOST.find(app)
    assert (found.version, found.installable) == ("0.33.1", False)
    assert "signed" in found.how
    assert "--path" in found.how


def test_nothing_there(tmp_path: Path) -> None:
    assert not list(HOST.find(tmp_path))
    assert not list(HOST.find(tmp_path / "gone"))


@needs_sh
def test_a_program_that_hangs_or_lies_has_no_version(
    tmp_path: Path, copy: Copy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "_MOST_SECONDS", 0.3)
    for n, text in enumerate(("sleep 30", "echo version is unknown", "exit 1", "kill -9 $$")):
        root = copy(tmp_path / str(n))
        (root / "bin" / "ollama").write_text(f"#!/bin/sh\nexec 2>&1\n{text}\n")
        (found,) = HOST.find(root)
        assert found.version is None
        assert found.installable

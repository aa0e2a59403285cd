"""LM Studio is found where its home may be, with its version and what can be done there."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.integrations.lmstudio import LMStudio


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's home folder."""
    folder = tmp_path / "user"
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    return folder


@pytest.mark.parametrize("system", ["linux", "win"])
@pytest.mark.parametrize("where", [".lmstudio", ".cache/lm-studio"])
def test_the_usual_places(user: Path, make_home: Callable, system: str, where: str) -> None:
    home = make_home(user / where, system)
    home.pack("avx2", "2.31.2")
    (found,) = LMStudio().find(None)
    assert found.root == home.path
    assert found.installable
    assert f"llama.cpp-{system}-x86_64-avx2@2.31.2" in found.how


def test_the_pointer_wins(user: Path, tmp_path: Path, make_home: Callable) -> None:
    make_home(user / ".lmstudio").pack("avx2", "2.1.0")
    pointed = make_home(tmp_path / "elsewhere")
    pointed.pack("avx2", "2.2.0")
    (user / ".lmstudio-home-pointer").write_text(f"{pointed.path}\n")
    assert [f.root for f in LMStudio().find(None)] == [pointed.path, user / ".lmstudio"]


@pytest.mark.parametrize("pointer", ["", "relative", "\0", "/nowhere", "x" * 5000])
def test_a_pointer_that_leads_nowhere(user: Path, make_home: Callable, pointer: str) -> None:
    home = make_home(user / ".lmstudio")
    (user / ".lmstudio-home-pointer").write_text(pointer)
    assert [f.root for f in LMStudio().find(None)] == [home.path]


def test_no_lm_studio(user: Path) -> None:
    assert list(LMStudio().find(None)) == []


@pytest.mark.parametrize("below", ["", ".lmstudio"])
def test_a_path(user: Path, make_home: Callable, below: str) -> None:
    make_home(user / ".cache" / "lm-studio")
    home = make_home(user / "disk" / ".lmstudio")
    assert [f.root for f in LMStudio().find(home.path if below else user / "disk")] == [home.path]


def test_bionic_has_its_state_elsewhere(user: Path, make_home: Callable) -> None:
    home = make_home(user / ".lmstudio")
    home.pack("avx2", "2.31.2")
    home.pack("vulkan-avx2", "2.30.0")
    old = home.choose("avx2", "2.31.2")
    bionic = home.path / "apps" / "bionic" / ".internal"
    bionic.mkdir(parents=True)
    entry = {"model_format": "gguf", "name": home.name("vulkan-avx2"), "version": "2.30.0"}
    (bionic / old.name).write_text(json.dumps([entry]))
    os.utime(old, (1, 1))
    (found,) = LMStudio().find(None)
    assert "vulkan" in found.how
    os.utime(bionic / old.name, (0, 0))
    (found,) = LMStudio().find(None)
    assert "vulkan" not in found.how


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("/home/a/LM-Studio-0.4.25-1-x64.AppImage", "0.4.25-1"),
        ("C:\\Users\\a\\LM-Studio-0.4.17.exe", "0.4.17"),
        ("/opt/LM Studio/lm-studio", None),
        (17, None),
    ],
)
def test_version(user: Path, make_home: Callable, program: object, version: str | None) -> None:
    home = make_home(user / ".lmstudio")
    location = {"path": program, "argv": [], "cwd": "/"}
    (home.path / ".internal" / "app-install-location.json").write_text(json.dumps(location))
    (found,) = LMStudio().find(None)
    assert found.version == version


def test_version_of_unpacked_files(user: Path, tmp_path: Path, make_home: Callable) -> None:
    home = make_home(user / ".lmstudio")
    app = tmp_path / "LM Studio" / "resources" / "app"
    app.mkdir(parents=True)
    (app / "package.json").write_text('{"version": "0.4.25"}')
    location = {"path": str(tmp_path / "LM Studio" / "lm-studio")}
    (home.path / ".internal" / "app-install-location.json").write_text(json.dumps(location))
    (found,) = LMStudio().find(None)
    assert found.version == "0.4.25"


def test_macos_is_said_to_be_impossible(user: Path, make_home: Callable) -> None:
    make_home(user / ".lmstudio", "mac").pack("avx2", "2.31.2")
    (found,) = LMStudio().find(None)
    assert not found.installable
    assert "macOS" in found.how

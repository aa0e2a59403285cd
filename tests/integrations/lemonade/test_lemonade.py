"""Lemonade: its settings changed and put back, its builds as originals, registered models."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostCall, Installation, Tools, Translated
from srhpm_plugin.integrations.lemonade import Lemonade
from srhpm_plugin.plan import HostRequest

HOST = Lemonade()
NAME = "llama-server.exe" if sys.platform == "win32" else "llama-server"


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with a Lemonade that has fetched builds for the CPU and Vulkan."""
    home = tmp_path / "user"
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "LEMONADE_CACHE_DIR", "HF_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    (home / ".config" / "lemonade").mkdir(parents=True)
    for backend in ("cpu", "vulkan"):
        folder = home / ".cache" / "lemonade" / "bin" / "llamacpp" / backend / "llama-b9999"
        folder.mkdir(parents=True)
        (folder / NAME).write_text("its own")
    return home


def config(user: Path) -> Path:
    return user / ".config" / "lemonade" / "config.json"


def found_in(user: Path) -> Installation:
    return next(f for f in HOST.find(None) if f.root.is_relative_to(user))


def read(user: Path) -> Any:
    return json.loads(config(user).read_text())


def test_every_backend_with_a_program(
    user: Path, install: Callable, tree: Callable, tools: Tools
) -> None:
    config(user).write_text('{"port": 9, "llamacpp": {"vulkan_bin": "b9999", "args": "-t 2"}}')
    before = tree(user)
    done = install(HOST, found_in(user), "all")
    assert HOST.registered(found_in(user))
    section = read(user)["llamacpp"]
    assert sorted(section) == ["args", "cpu_bin", "vulkan_bin"]
    assert read(user)["port"] == 9
    for backend in ("cpu", "vulkan"):
        place = Path(section[f"{backend}_bin"])  # the program: Lemonade starts what stands there
        assert place.is_relative_to(tools.state)
        note = Note.parse(Note.path_for(place).read_bytes())
        assert note.original is not None
        assert note.original.parts[-3:] == (backend, "llama-b9999", NAME)
    assert done.undo() == []
    assert tree(user) == before
    assert not HOST.registered(found_in(user))


def test_no_settings_yet(user: Path, install: Callable, tree: Callable) -> None:
    before = tree(user)
    done = install(HOST, found_in(user), "select")
    assert sorted(read(user)["llamacpp"]) == ["cpu_bin"]
    done.undo()
    assert tree(user) == before


def test_the_users_own_build_is_the_original(user: Path, install: Callable, tmp_path: Path) -> None:
    mine = tmp_path / NAME
    mine.write_text("mine")
    config(user).write_text(json.dumps({"llamacpp": {"rocm_bin": str(mine)}}))
    install(HOST, found_in(user), "all")
    note = Note.parse(Note.path_for(Path(read(user)["llamacpp"]["rocm_bin"])).read_bytes())
    assert (note.original, note.facts["was"]) == (mine, str(mine))


def test_written_anew_by_lemonade(user: Path, install: Callable) -> None:
    """A setting changed through ``lemond``: ours are taken out of what it wrote."""
    config(user).write_text('{"llamacpp": {"vulkan_bin": "latest"}, "port": 1}')
    done = install(HOST, found_in(user), "all")
    config(user).write_text(json.dumps({**read(user), "ctx_size": 4096}, sort_keys=True))
    done.undo()
    assert read(user) == {"llamacpp": {"vulkan_bin": "latest"}, "port": 1, "ctx_size": 4096}


@pytest.mark.parametrize("text", ["[]", '{"llamacpp": 1}', "{", '{"a": 1, "a": 2}'])
def test_settings_that_are_none(user: Path, tools: Tools, text: str) -> None:
    config(user).write_text(text)
    with pytest.raises(UserError):
        HOST.steps(found_in(user), tools, "all")


def test_named_by_path(user: Path) -> None:
    for path in (user / ".config" / "lemonade", config(user)):
        (found,) = HOST.find(path)
        assert found.root == user / ".config" / "lemonade"
        assert found.facts["cache"] == str(user / ".cache" / "lemonade")
    assert list(HOST.find(user / "nowhere")) == []


def test_models(user: Path) -> None:
    folder = user / ".cache/huggingface/hub/models--org--repo-GGUF/snapshots/abc"
    folder.mkdir(parents=True)
    for name in ("m-Q4_K_M.gguf", "mmproj-Q4_K_M.gguf", "draft-Q8_0.gguf"):
        (folder / name).write_bytes(b"GGUF")
    main = "org/repo-GGUF:Q4_K_M"
    registered = {
        "mine": {"recipe": "llamacpp", "checkpoint": main},
        "user.fast": {
            "recipe": "llamacpp",
            "checkpoints": {
                "main": main,
                "draft": "org/repo-GGUF:Q8_0",
                "mmproj": "org/repo-GGUF:mmproj-Q4_K_M.gguf",
            },
        },
        "e": {"recipe": "llamacpp", "checkpoint": main, "labels": ["embeddings"]},
        "other": {"recipe": "flm", "checkpoint": main},
        "out": {"recipe": "llamacpp", "checkpoint": "../..:Q4"},
        "out2": {"recipe": "llamacpp", "checkpoint": "org/repo-GGUF:../../x"},
        "odd": 3,
    }
    (user / ".config" / "lemonade" / "user_models.json").write_text(json.dumps(registered))
    models = {m.name: m for m in HOST.models(found_in(user))}
    assert sorted(models) == ["e", "fast", "mine"]
    assert models["mine"].path == folder / "m-Q4_K_M.gguf"
    assert models["fast"].drafter == folder / "draft-Q8_0.gguf"
    assert models["fast"].mmproj == folder / "mmproj-Q4_K_M.gguf"
    assert models["e"].unfit is not None


@pytest.mark.parametrize(("mode", "picked"), [("all", False), ("select", True)])
def test_the_backend_is_the_pick(mode: Any, picked: bool) -> None:
    request = HostRequest(model=Path("m"))
    told = HOST.translate(HostCall("lemonade", (), {}, {}, mode), request)
    assert isinstance(told, Translated)
    assert told.picked is picked


def test_its_own_server(user: Path) -> None:
    """For a build that matches it: the one with a GPU."""
    server = HOST.own_server(found_in(user))
    assert server is not None
    assert server.parts[-3:-1] == ("vulkan", "llama-b9999")


@pytest.mark.skipif(sys.platform == "win32", reason="the program is a script")
def test_its_version(user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert [found.version for found in HOST.find(None)] == [None]
    program = tmp_path / "bin" / "lemonade"
    program.parent.mkdir(exist_ok=True)
    program.write_text("#!/bin/sh\necho lemonade version 11.7.0\n")
    program.chmod(0o755)
    assert [found.version for found in HOST.find(None)] == ["11.7.0"]

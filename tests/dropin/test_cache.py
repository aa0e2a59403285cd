"""Decisions that are kept: when they are taken again, when they are made anew, what is in them."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin import cache
from srhpm_plugin.dropin.answer import Answer
from srhpm_plugin.dropin.cache import Kept, keep, key_of, look_up, watch

GIB = 1 << 30


@pytest.fixture
def model(smollm2: Path, tmp_path: Path) -> Path:
    """A model in a folder of its own."""
    path = tmp_path / "models" / "model.gguf"
    path.parent.mkdir()
    shutil.copy(smollm2, path)
    return path


@pytest.fixture
def starting(
    place: Any, model: Path, real_server: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """``starting(*args, env={})``: the key of a start of the model."""

    def key(*args: str | Path, env: Mapping[str, str] | None = None) -> str:
        monkeypatch.setenv("SRHPM_SERVER", str(real_server))
        return key_of(place.call("-m", model, *args, env=env))

    return key


def test_what_changes_nothing(starting: Callable[..., str]) -> None:
    """What is different at every start, or secret, is not in the key."""
    first = starting("--port", "1", "--api-key", "a", "--host", "/tmp/a.sock")
    assert first == starting("--port", "2", "--api-key", "b", "--host", "/tmp/b.sock")
    assert starting("--port=1") == starting("--port=2")
    env = {"LLAMA_API_KEY": "x", "LLAMA_MEDIA_MARKER": "<1>", "TERM": "dumb", "LLAMA_ARG_PORT": "1"}
    assert starting() == starting(env=env)


def touch(path: Path) -> None:
    info = path.stat()
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns + 1_000_000))


def argument(starting: Callable[..., str], place: Any, model: Path) -> str:
    return starting("-c", "2048")


def order(starting: Callable[..., str], place: Any, model: Path) -> str:
    return starting("--port", "--api-key")


def variable(starting: Callable[..., str], place: Any, model: Path) -> str:
    return starting(env={"LLAMA_ARG_THREADS": "1"})


def ours(starting: Callable[..., str], place: Any, model: Path) -> str:
    return starting(env={"SRHPM_KERNELS": "off"})


def library_path(starting: Callable[..., str], place: Any, model: Path) -> str:
    return starting(env={"SRHPM_HOST_LD_LIBRARY_PATH": "/elsewhere"})


def model_file(starting: Callable[..., str], place: Any, model: Path) -> str:
    touch(model)
    return starting()


def another_model(starting: Callable[..., str], place: Any, model: Path) -> str:
    model.unlink()
    model.write_bytes(b"GGUF")
    return starting()


def note(starting: Callable[..., str], place: Any, model: Path) -> str:
    place.note(mode="select")
    return starting()


def original(starting: Callable[..., str], place: Any, model: Path) -> str:
    touch(place.original)
    return starting()


def configuration(starting: Callable[..., str], place: Any, model: Path) -> str:
    folder = Path(os.environ["SRHPM_HOME"]) / "config"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("[models]\n")
    return starting()


def figures(starting: Callable[..., str], place: Any, model: Path) -> str:
    calibration = Path(os.environ["SRHPM_HOME"]) / "cache" / "calibration.json"
    calibration.parent.mkdir(parents=True, exist_ok=True)
    calibration.write_text("{}")
    return starting()


def llama_configuration(starting: Callable[..., str], place: Any, model: Path) -> str:
    folder = model.parent / "llama.cpp"
    folder.mkdir()
    (folder / "config.ini").write_text("")
    place.env["XDG_CONFIG_HOME"] = str(model.parent)
    return starting()


@pytest.mark.parametrize(
    "change",
    [
        argument,
        order,
        variable,
        ours,
        library_path,
        model_file,
        another_model,
        note,
        original,
        configuration,
        figures,
        llama_configuration,
    ],
)
def test_what_changes_the_key(
    change: Callable[..., str], starting: Callable[..., str], place: Any, model: Path
) -> None:
    before = starting()
    assert before == starting()
    assert change(starting, place, model) != before


def test_server_package_and_processor_change_the_key(
    starting: Callable[..., str],
    place: Any,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    keys = {starting()}
    server = tmp_path / "build" / "bin" / "llama-server"
    server.parent.mkdir(parents=True)
    server.touch()
    monkeypatch.setenv("SRHPM_SERVER", str(server))
    keys.add(key_of(place.call("-m", model)))
    touch(server)
    keys.add(key_of(place.call("-m", model)))
    (server.parent.parent / "srhpm-native.json").write_text("{}")
    keys.add(key_of(place.call("-m", model)))
    monkeypatch.setattr(cache, "__version__", "9.9")
    keys.add(key_of(place.call("-m", model)))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    keys.add(key_of(place.call("-m", model)))
    (tmp_path / "new-1.0.dist-info").mkdir()
    keys.add(key_of(place.call("-m", model)))
    monkeypatch.setattr(cache, "_processor", lambda: [1, [0]])
    keys.add(key_of(place.call("-m", model)))
    assert len(keys) == 8


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Kept]:
    """``kept(**fields)``: a decision to keep."""

    def make(**fields: Any) -> Kept:
        answer = Answer(tmp_path / "server", (("A", "--x"), ("I", "0")), {"A": "b=c", "D": None})
        return Kept(answer, {"kind": "srhpm"}, **fields)

    return make


def test_kept_and_found_again(kept: Callable[..., Kept]) -> None:
    keep("k" * 64, kept())
    found = look_up("k" * 64)
    assert found == kept()
    assert found is not None
    assert found.answer.to_bytes() == kept().answer.to_bytes()
    assert look_up("j" * 64) is None
    assert look_up("k" * 40 + "j" * 24) is None, "the file's name is not the whole key"


def test_a_new_file_in_a_watched_folder(kept: Callable[..., Kept], tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    gone = tmp_path / "not there"
    keep("k", kept(watched=watch([folder, gone])))
    assert look_up("k") is not None
    (folder / "notes.txt").write_text("no model")
    assert look_up("k") is not None, "what is no model changes nothing"
    with (folder / "sha256-0").open("wb") as file:
        file.truncate(2 << 20)
    assert look_up("k") is None
    keep("k", kept(watched=watch([folder, gone])))
    (folder / "more").mkdir()
    assert look_up("k") is None, "a folder may hold models"
    keep("k", kept(watched=watch([folder, gone])))
    gone.touch()
    assert look_up("k") is None
    keep("k", kept(watched=watch([folder])))
    shutil.rmtree(folder)
    assert look_up("k") is None


def test_memory_is_looked_at_each_time(
    kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[int | None] = [4 * GIB]
    monkeypatch.setattr("srhpm_plugin.dropin.memory.free_ram", lambda: free[0])
    keep("k", kept(needs=2 * GIB))
    assert look_up("k") is not None
    free[0] = 1 * GIB
    assert look_up("k") is None, "less is free than it needs"
    free[0] = None
    assert look_up("k") is None, "nobody knows how much is free"
    keep("k", kept(needs=GIB, squeezed=2 * GIB))
    free[0] = 2 * GIB
    assert look_up("k") is not None
    free[0] = 8 * GIB
    assert look_up("k") is None, "it need not be squeezed any more"


def test_free_memory_as_the_machine_tells_it() -> None:
    from srhpm_plugin.dropin.memory import free_ram
    from srhpm_plugin.machine.probe import probe

    free = free_ram()
    if sys.platform in ("linux", "win32"):
        assert free is not None
        assert abs(free - probe().memory.free) < max(free // 2, GIB)
    else:
        assert free is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"key": "k"}',
        b'{"key": "k", "answer": [["P", 1]], "record": {}, "needs": 0, "squeezed": 0,'
        b' "watched": {}}',
        b'{"key": "k", "answer": [["Z", "x"]], "record": {}, "needs": 0, "squeezed": 0,'
        b' "watched": {}}',
        b'{"key": "k", "answer": [["P", "relative"]], "record": {}, "needs": 0, "squeezed": 0,'
        b' "watched": {}}',
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ],
)
def test_damage_counts_as_not_there(content: bytes, kept: Callable[..., Kept]) -> None:
    keep("k", kept())
    (path,) = (Path(os.environ["SRHPM_HOME"]) / "cache" / "dropin").iterdir()
    path.write_bytes(content)
    assert look_up("k") is None


def test_for_the_owner_alone_and_bounded(
    kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MOST", 5)
    for i in range(9):
        keep(f"{i}", kept())
    folder = Path(os.environ["SRHPM_HOME"]) / "cache" / "dropin"
    assert len(list(folder.iterdir())) == 5
    assert look_up("8") is not None
    if os.name == "posix":
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_where_nothing_can_be_written_nothing_fails(
    kept: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SRHPM_HOME", str(tmp_path / "file"))
    keep("k", kept())
    assert look_up("k") is None

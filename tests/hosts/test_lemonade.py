"""Lemonade's side replayed: the program of ``llamacpp.cpu_bin`` with its list of arguments.

Facts: lemonade e385039e and 04b77035, ``llamacpp_server.cpp`` (arguments; ``LD_LIBRARY_PATH`` for
CUDA and ROCm), ``/health`` polled until 200.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.host import Mode
from srhpm_plugin.integrations.lemonade import Lemonade

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = Lemonade()


@pytest.fixture
def folder(tmp_path: Path, stock: Callable) -> Path:
    """Lemonade's settings, and a build it has fetched."""
    config = tmp_path / "user" / ".config" / "lemonade"
    build = tmp_path / "user" / ".cache" / "lemonade" / "bin" / "llamacpp" / "cpu" / "llama-b9"
    config.mkdir(parents=True)
    build.mkdir(parents=True)
    stock(build / "llama-server", tmp_path / "stock.json")
    (config / "config.json").write_text('{\n  "llamacpp": {\n    "args": ""\n  }\n}\n')
    return config


def program(folder: Path) -> Path:
    """What Lemonade starts for the backend ``cpu``."""
    settings = json.loads((folder / "config.json").read_text())
    value = settings["llamacpp"].get("cpu_bin", "builtin")
    if value != "builtin":
        return Path(value)
    cache = folder.parent.parent / ".cache" / "lemonade" / "bin" / "llamacpp" / "cpu"
    return next(cache.rglob("llama-server"))


def arguments(model: Path, port: int) -> list[str]:
    """In Lemonade's order for the backend ``cpu`` and a model without labels."""
    line = ["-m", str(model), "--ctx-size", "2048", "--port", str(port), "--jinja", "--metrics"]
    line += ["--keep", "16", "--reasoning-format", "auto", "--no-ui"]
    return [*line, "-t", "2"]  # the last is the user's llamacpp.args


@pytest.mark.parametrize("mode", ["all", "select"])
def test_a_chat(
    folder: Path,
    smollm2: Path,
    mode: Mode,
    register: Callable,
    start: Callable,
    chat: Callable,
    free_port: Callable,
    tree: Callable,
) -> None:
    before, port = tree(folder), free_port()
    undo = register(HOST, folder, mode)
    ours = program(folder)
    env = {"LD_LIBRARY_PATH": str(ours.parent)}
    child = start(ours, arguments(smollm2, port), env)
    child.wait_healthy(f"http://127.0.0.1:{port}")
    assert any("runs on SR-HPM" in line for line in child.lines)
    assert "speculation" in chat(f"http://127.0.0.1:{port}", "none")["timings"]
    child.stop()
    undo()
    assert tree(folder) == before
    assert program(folder).name == "llama-server"
    assert "llama-b9" in program(folder).parts


def test_embeddings_run_on_its_own(
    folder: Path,
    smollm2: Path,
    tmp_path: Path,
    register: Callable,
    start: Callable,
    free_port: Callable,
) -> None:
    register(HOST, folder, "all")
    port = free_port()
    line = [*arguments(smollm2, port), "--embeddings"]
    child = start(program(folder), line, {"LD_LIBRARY_PATH": "/nowhere"})
    child.wait_healthy(f"http://127.0.0.1:{port}")
    told = json.loads((tmp_path / "stock.json").read_text())
    assert told["argv"][-len(line) :] == line
    assert told["env"]["LD_LIBRARY_PATH"] == "/nowhere"

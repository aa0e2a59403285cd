"""llama-swap's side replayed: its configuration read, a model's command started in a process group
of its own, ``/health`` polled, the group ended.

Facts: llama-swap 0bdb3720, ``internal/config`` (macros, commands), ``internal/process``. The real
one was tried by hand (docs/hosts/llama-swap.md).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest
from ruamel.yaml import YAML

from srhpm_plugin.dropin.status import launches
from srhpm_plugin.host import Mode
from srhpm_plugin.integrations.llamaswap import LlamaSwap

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = LlamaSwap()


@pytest.fixture
def file(tmp_path: Path, smollm2: Path, stock: Callable) -> Path:
    """A configuration over a stand-in for the user's server."""
    programs = tmp_path / "my programs"
    programs.mkdir()
    stock(programs / "llama-server", tmp_path / "stock.json")
    path = tmp_path / "swap" / "config.yaml"
    path.parent.mkdir()
    path.write_text(
        "# mine\nmacros:\n"
        f'  latest: "\\"{programs}/llama-server\\" --port ${{PORT}}"\n'
        "models:\n"
        "  small:   # the model\n"
        "    cmd: |\n      ${latest}\n      # of mine\n"
        f"      -m {smollm2} \\\n      -c 1024 -t 2\n"
        "    env: [SWAPPED=yes]\n"
    )
    return path


def command(file: Path, name: str, port: int) -> tuple[list[str], dict[str, str]]:
    """What llama-swap starts for a model: macros, comments, line ends, words."""
    data: dict[str, Any] = YAML(typ="safe", pure=True).load(file.read_text())
    model = data["models"][name]
    lines = [line for line in model["cmd"].split("\n") if not line.strip().startswith("#")]
    text = "\n".join(lines)
    macros = {"MODEL_ID": name, **data["macros"], **model.get("macros", {})}
    for key, value in [*reversed(macros.items()), ("PORT", port)]:
        text = text.replace(f"${{{key}}}", str(value))
    ends = [line.strip() for line in text.split("\n")]
    text = "\n".join(e[:-1] + " " if e.endswith("\\") else e for e in ends)
    return shlex.split(text), dict(e.split("=", 1) for e in model.get("env", ()))


@pytest.mark.parametrize(("mode", "name"), [("select", "small-srhpm"), ("all", "small")])
def test_a_model_on_ours(
    file: Path,
    mode: Mode,
    name: str,
    register: Callable,
    start: Callable,
    free_port: Callable,
    tree: Callable,
) -> None:
    before, port = tree(file.parent), free_port()
    undo = register(HOST, file, mode)
    words, env = command(file, name, port)
    child = start(Path(words[0]), words[1:], env)
    child.wait_healthy(f"http://127.0.0.1:{port}")
    assert any(f"{name} runs on SR-HPM" in line for line in child.lines)
    assert [row["model"] for row in launches(9)] == [name]
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=120)
    said = client.chat.completions.create(
        model=name, messages=[{"role": "user", "content": "Count."}], temperature=0, max_tokens=8
    )
    assert "speculation" in said.model_extra["timings"]  # type: ignore[index]
    child.process.terminate()
    assert child.process.wait(30) == 0
    undo()
    assert tree(file.parent) == before


def test_a_name_that_was_not_picked_never_comes_to_us(
    file: Path, register: Callable, free_port: Callable
) -> None:
    original = command(file, "small", 1)
    register(HOST, file, "select")
    assert command(file, "small", 1) == original


def test_what_ours_cannot_run_goes_to_the_users_server(
    file: Path, tmp_path: Path, register: Callable, start: Callable, free_port: Callable
) -> None:
    register(HOST, file, "select")
    words, env = command(file, "small-srhpm", free_port())
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    words[words.index("-m") + 1] = str(broken)
    child = start(Path(words[0]), words[1:], env)
    child.wait_for(["is handed over"])
    told = tmp_path / "stock.json"
    child.wait_healthy(f"http://127.0.0.1:{words[words.index('--port') + 1]}")
    said = json.loads(told.read_text())
    assert said["argv"][-len(words) + 1 :] == words[1:]
    assert said["env"]["SWAPPED"] == "yes"

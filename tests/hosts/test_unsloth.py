"""Unsloth Studio's side replayed: its custom folder's server asked for its options, started, polled
and talked to.

Facts: unsloth 015bdef0, ``studio/backend/core/inference/llama_cpp.py`` (the command line as
``load_model`` builds it; ``--spec-default`` for speculation "Auto", nothing for "Off").
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from srhpm_plugin.integrations.unsloth import UnslothStudio

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = UnslothStudio()


@pytest.fixture
def root(tmp_path: Path, stock: Callable) -> Path:
    """Studio's folder, with its own llama.cpp."""
    folder = tmp_path / "user" / ".unsloth"
    own = folder / "llama.cpp" / "build" / "bin"
    own.mkdir(parents=True)
    (folder / "studio").mkdir()
    stock(own / "llama-server", tmp_path / "stock.json")
    return folder


@pytest.fixture
def chosen(root: Path, register: Callable) -> Path:
    """The program in the folder that the user is told to choose."""
    register(HOST, root, "all")
    installs = Path(os.environ["SRHPM_HOME"]) / "data" / "installs"
    (program,) = installs.glob("unsloth-studio-*/own/llama-server")
    return program


def arguments(model: Path, port: int, slots: Path, *speculation: str) -> list[str]:
    """In Studio's order, for a model that it lets ``--fit`` place."""
    line = ["-m", str(model), "--port", str(port), "--parallel", "4", "--flash-attn", "on"]
    line += ["--no-context-shift", "-c", "2048", "--alias", "unsloth/SmolLM2-GGUF", "--fit", "on"]
    line += ["--metrics", "--slot-save-path", str(slots), "--kv-unified", "--fit-ctx", "2048"]
    return [*line, "--threads", "2", "--jinja", *speculation]


@pytest.mark.parametrize("choice", ["Auto", "Off"])
def test_a_chat(
    choice: str,
    root: Path,
    chosen: Path,
    smollm2: Path,
    tmp_path: Path,
    start: Callable,
    chat: Callable,
    free_port: Callable,
    tree: Callable,
) -> None:
    before, port = tree(root), free_port()
    (tmp_path / "slots").mkdir()
    speculation = ["--spec-default"] if choice == "Auto" else []
    line = arguments(smollm2, port, tmp_path / "slots", *speculation)
    child = start(chosen, line)
    url = f"http://127.0.0.1:{port}"
    child.wait_healthy(url)
    assert any("unsloth/SmolLM2-GGUF runs on SR-HPM" in line for line in child.lines)
    # Studio shows the context of a slot
    props = httpx.get(f"{url}/props", timeout=30).json()
    assert props["default_generation_settings"]["n_ctx"] == 2048
    assert chat(url, "none")["text"]
    drafts = any("speculation on" in line for line in child.lines)
    assert drafts == (choice == "Auto")
    assert not any("ngram-mod" in line for line in child.lines if "speculation on" in line)
    child.stop()
    assert tree(root) == before


def test_its_questions_go_to_its_own(chosen: Path, tmp_path: Path) -> None:
    """By the options in ``--help`` Studio chooses what it passes."""
    done = subprocess.run([str(chosen), "--help"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert b"--drafted" in done.stdout, "an option of the stand-in's"


def test_speculation_that_its_user_chose_stays(
    chosen: Path, smollm2: Path, tmp_path: Path, start: Callable, free_port: Callable
) -> None:
    (tmp_path / "slots").mkdir()
    port = free_port()
    mod = ["--spec-type", "ngram-mod", "--spec-ngram-mod-n-match", "24"]
    mod += ["--spec-ngram-mod-n-min", "48", "--spec-ngram-mod-n-max", "64"]
    child = start(chosen, arguments(smollm2, port, tmp_path / "slots", *mod))
    child.wait_healthy(f"http://127.0.0.1:{port}")
    assert any("ngram-mod" in line for line in child.lines if "speculation on" in line)
    folder = Path(os.environ["SRHPM_HOME"]) / "data" / "launches"
    (record,) = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert record["drafter"] == "the host's own"

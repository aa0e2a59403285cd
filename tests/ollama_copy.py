"""A copy of Ollama with a store, and what its emulator does with it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ollama_emulator import Ollama, Runner
from ollama_store import Shelf

COUNT = "Count from one to twenty in words: one, two, three,"
DUMP = r"""#!/bin/sh
printf '%s\n' "$@" > {dump}.argv
env > {dump}.env
case " $* " in
*" --list-devices "*)
    echo "Available devices:"
    echo "  CUDA0: NVIDIA GeForce RTX 4060 Ti (16379 MiB, 14900 MiB free)" ;;
*" --model "*) exec {fake} "$@" ;;
*) echo "system_info: n_threads = 2 | CUDA : ARCHS = 750,890" >&2; exec sleep 60 ;;
esac
"""


class Copy:
    """An installed Ollama with a store.

    Attributes:
        dump: start of the names of files in which its own server writes what it got.
    """

    def __init__(self, root: Path, shelf: Shelf, ollama: Ollama) -> None:
        self.root, self.shelf, self.ollama = root, shelf, ollama
        self.dump = root.parent / "own"

    def got(self) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of the last start of its own server."""
        argv = Path(f"{self.dump}.argv").read_text().splitlines()
        env = Path(f"{self.dump}.env").read_text().splitlines()
        return argv, dict(line.split("=", 1) for line in env if "=" in line)

    def forget(self) -> None:
        """As if its own server had never run."""
        Path(f"{self.dump}.argv").unlink()

    def own_server_ran(self) -> bool:
        return Path(f"{self.dump}.argv").exists()


def blob(copy: Copy, name: str, file: Path, **params: Any) -> Path:
    """The blob of a model that is put into the store."""
    copy.shelf.add(name, file, params)
    return copy.shelf.path(copy.shelf.blob(file))


def runs_ours(runner: Runner, server_dir: Path) -> bool:
    exe = Path(f"/proc/{runner.process.pid}/exe").resolve()
    return exe == (server_dir / "llama-server").resolve()


def words(runner: Runner, prompt: str = COUNT, n: int = 24) -> tuple[str, dict[str, Any]]:
    """A completion as Ollama asks for it; text and the last event."""
    body = {
        "prompt": prompt, "stream": True, "cache_prompt": True, "n_predict": n, "n_keep": 4,
        "temperature": 0, "top_k": 40, "top_p": 0.9, "min_p": 0, "stop": [], "seed": 1,
        "repeat_penalty": 1.0, "repeat_last_n": 64, "frequency_penalty": 0,
        "presence_penalty": 0, "typical_p": 1,
    }  # fmt: skip
    events = list(runner.events("/completion", body))
    assert events[-1]["stop"]
    return "".join(e["content"] for e in events), events[-1]


def records() -> list[dict[str, Any]]:
    """The launches that `status` shows."""
    folder = Path(os.environ["SRHPM_HOME"]) / "data" / "launches"
    return [json.loads(p.read_text()) for p in sorted(folder.glob("*.json"))]

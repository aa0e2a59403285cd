"""The patched server on a real small model, with a drafter that is right often but not always."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from srhpm_plugin.backend import Command
from srhpm_plugin.launch.server import serve

# Prompts of several kinds; all greedy.
PROMPTS = [
    "Write three sentences about the sea in winter.",
    "Count from one to twenty in words.",
    "def fibonacci(n):",
]


@dataclass
class Api:
    """One running server. Every request is greedy unless it says otherwise."""

    url: str
    log: Path

    def post(self, path: str, body: dict[str, Any], timeout: float = 300.0) -> dict[str, Any]:
        answer = httpx.post(self.url + path, json=body, timeout=timeout, trust_env=False)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()
        return result

    def complete(self, prompt: str, n: int = 64, **more: Any) -> dict[str, Any]:
        body = {"prompt": prompt, "n_predict": n, "temperature": 0.0, "return_tokens": True}
        return self.post("/completion", {**body, "cache_prompt": False, **more})

    def chat(self, *messages: str, n: int = 48, **more: Any) -> dict[str, Any]:
        roles = ("user", "assistant")
        body = {
            "messages": [
                {"role": roles[i % 2], "content": text} for i, text in enumerate(messages)
            ],
            "max_tokens": n,
            "temperature": 0.0,
        }
        return self.post("/v1/chat/completions", {**body, **more})


Start = Callable[..., AbstractContextManager[Api]]


@pytest.fixture(scope="session")
def drafter(server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, quantized so coarsely that it is wrong now and then."""
    path = tmp_path_factory.mktemp("drafter") / "drafter.gguf"
    argv = [server_dir / "llama-quantize", "--allow-requantize", smollm2, path, "Q2_K"]
    subprocess.run([str(a) for a in argv], check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def start(server_dir: Path, smollm2: Path) -> Start:
    """Starts the server: ``start("--flag", ..., env={...}, ctx=2048, slots=1)``."""

    @contextmanager
    def _start(
        *args: str | Path,
        env: dict[str, str] | None = None,
        ctx: int = 2048,
        slots: int = 1,
        model: Path = smollm2,
        exact: bool = True,
        program: str = "llama-server",
    ) -> Iterator[Api]:
        argv = [server_dir / program, "-m", model, "-c", ctx * slots, "-np", slots]
        argv += ["-t", 2, "-tb", 2, "--no-webui", "--flash-attn", "on", "--cache-ram", 0]
        # Waiting threads sleep: on a busy machine spinning ones take the cores from the working.
        settings = {"OMP_WAIT_POLICY": "passive"}
        if exact:
            settings["SRHPM_EXACT"] = str(8 * slots)
        command = Command(tuple(str(a) for a in [*argv, *args]), {**settings, **(env or {})})
        with serve(command, start_timeout=120) as server:
            yield Api(server.base_url, server.log)

    return _start


@pytest.fixture(scope="session")
def draft_args(drafter: Path) -> list[str | Path]:
    """Speculation with the coarse drafter, adaptive from 3 to 7 tokens."""
    return [
        "--spec-type",
        "draft-simple",
        "--spec-draft-model",
        drafter,
        "--spec-draft-n-max",
        "7",
        "--spec-draft-p-min",
        "0.75",
        "--srhpm-draft-n-min",
        "3",
    ]


NGRAM_ARGS = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]


@pytest.fixture(scope="session")
def plain(start: Start) -> Iterator[Api]:
    """The same server without a drafter."""
    with start() as api:
        yield api


@pytest.fixture(scope="session")
def drafted(start: Start, draft_args: list[str | Path]) -> Iterator[Api]:
    """The server with the coarse drafter."""
    with start(*draft_args) as api:
        yield api


@pytest.fixture(scope="session")
def ngram(start: Start) -> Iterator[Api]:
    """The server with the n-gram drafter."""
    with start(*NGRAM_ARGS) as api:
        yield api


@pytest.fixture(params=["drafted", "ngram"])
def speculating(request: pytest.FixtureRequest) -> Api:
    """Each speculating server in turn."""
    api: Api = request.getfixturevalue(request.param)
    return api

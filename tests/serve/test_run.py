"""The port, the command, and stopping."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from click.testing import CliRunner

from srhpm_plugin.cli.serve import command
from srhpm_plugin.errors import UserError
from srhpm_plugin.serve import run as module
from srhpm_plugin.serve.run import listen
from srhpm_plugin.serve.settings import Settings


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody has, and does not speak on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        yield sock.getsockname()[1]


def test_a_taken_port_gives_way_to_the_next(taken: int) -> None:
    address = listen(Settings(port=taken))
    with address.sock:
        port = address.sock.getsockname()[1]
        assert taken < port <= taken + 20 and address.url == f"http://127.0.0.1:{port}"
        assert address.note == f"port {taken} is in use: listening on {port} instead"


def test_pieces_are_sent_as_they_come() -> None:
    async def delays() -> list[int]:
        found = []

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with listen(Settings(port=0)).sock as sock:
            port = sock.getsockname()[1]
            async with await asyncio.start_server(accepted, sock=sock):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await reader.read()
                writer.close()
        return found

    assert asyncio.run(delays()) == [1]


def test_a_taken_port_that_was_asked_for_is_an_error(taken: int) -> None:
    with pytest.raises(UserError, match=f"port {taken} is in use"):
        listen(Settings(port=taken, port_asked=True))


def test_it_says_that_ollama_has_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"server": "", "text": "Ollama is running"}

    def get(url: str, **more: Any) -> httpx.Response:
        return httpx.Response(200, text=answers["text"], headers={"Server": answers["server"]})

    monkeypatch.setattr(module.httpx, "get", get)
    assert module._who("http://x") == " by Ollama"
    answers["server"] = module.SERVER
    assert module._who("http://x") == " by another srhpm-plugin serve"
    answers.update(server="nginx", text="<html>")
    assert module._who("http://x") == ""


def test_beyond_loopback_only_with_a_key() -> None:
    with pytest.raises(UserError, match="--api-key"):
        listen(Settings(host="0.0.0.0"))
    listen(Settings(host="0.0.0.0", port=0, api_key="sesame")).sock.close()


@pytest.fixture
def models(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("SRHPM_MODELS", str(smollm2))
    return smollm2.stem


def test_dry_run(models: str) -> None:
    result = CliRunner().invoke(command, ["--dry-run"])
    assert result.exit_code == 0 and models in result.output
    assert re.search(
        r"Nothing was started; it would listen at http://127\.0\.0\.1:\d+", result.output
    )
    result = CliRunner().invoke(command, ["--dry-run", "--json"])
    said = json.loads(result.output)
    assert [model["name"] for model in said["models"]] == [models]
    assert said["models"][0]["origin"] == "files" and said["url"].startswith("http://127.0.0.1:")


def test_without_a_server_it_says_what_to_type(models: str) -> None:
    result = CliRunner().invoke(command, [])
    assert isinstance(result.exception, UserError)
    assert "srhpm-plugin native build" in result.exception.line()


@contextlib.contextmanager
def serve(server_dir: Path, model: Path, *flags: str) -> Iterator[subprocess.Popen[str]]:
    env = {
        **os.environ,
        "SRHPM_SERVER": str(server_dir / "llama-server"),
        "SRHPM_MODELS": str(model),
    }
    port = str(module.ports.free_port())
    argv = [sys.executable, "-m", "srhpm_plugin", "serve", "--json", "--port", port, *flags]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    said: dict[str, Any] = json.loads(process.stdout.readline())
    return said


def ask(url: str, model: str) -> httpx.Response:
    body = {"model": model, "prompt": "hi", "stream": False, "options": {"num_predict": 2}}
    return httpx.post(url + "/api/generate", json=body, timeout=120, trust_env=False)


@pytest.mark.server
@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one process there")
@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_told_to_stop_it_ends_its_servers(server_dir: Path, smollm2: Path, number: str) -> None:
    with serve(server_dir, smollm2, "--ctx", "512") as process:
        ready = read(process)
        assert ready["event"] == "ready" and ready["models"] == 1 and ready["note"] is None
        assert ask(ready["url"], smollm2.stem).json()["done"] is True
        with contextlib.suppress(httpx.TransportError):  # it may hang up while we still speak
            headers = {"x": "y" * 200_000}
            assert httpx.get(ready["url"], headers=headers, trust_env=False).status_code >= 400
        below = psutil.Process(process.pid).children(recursive=True)
        assert below
        process.send_signal(getattr(signal, number))
        assert read(process)["event"] == "stopping"
        process.wait(20)
        assert not psutil.wait_procs(below, timeout=5)[1]


@pytest.mark.server
def test_killed_it_leaves_nothing_behind(server_dir: Path, smollm2: Path) -> None:
    with serve(server_dir, smollm2, "--ctx", "512") as process:
        assert ask(read(process)["url"], smollm2.stem).status_code == 200
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        assert not psutil.wait_procs(below, timeout=10)[1]


@pytest.mark.server
@pytest.mark.skipif(sys.platform == "win32", reason="no signal can be sent to one process there")
def test_an_answer_on_its_way_is_given_time(server_dir: Path, smollm2: Path) -> None:
    with serve(server_dir, smollm2, "--ctx", "512") as process:
        url = read(process)["url"]
        assert ask(url, smollm2.stem).status_code == 200
        body = {"model": smollm2.stem, "prompt": "Count: 1 2 3", "options": {"num_predict": 9}}
        with httpx.stream("POST", url + "/api/generate", json=body, timeout=60) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGINT)
            said = [json.loads(line) for line in lines]
        assert said[-1]["done"] is True
        process.wait(20)

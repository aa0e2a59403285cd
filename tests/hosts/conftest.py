"""Hosts as programs of ours that start a server, read its log and talk to it as the real ones do.

What they do is what ``docs/hosts/*.md`` says of the real ones, with the sources named there.
"""

from __future__ import annotations

import json
import os
import queue
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from ollama_copy import DUMP, Copy
from ollama_emulator import Ollama
from ollama_store import Shelf
from trees import Tree, tree_of

from srhpm_plugin.host import Host, Installation, Mode
from srhpm_plugin.install.state import read_record, state_folder
from srhpm_plugin.install.transaction import Job, install, uninstall


@pytest.fixture
def tree() -> Callable[[Path], Tree]:
    """``tree(folder)``: all there is below it, for comparing before and after."""
    return tree_of


@pytest.fixture
def built(server_dir: Path) -> Path:
    """Our state with the built server in it, as ``native build`` leaves it; the state's folder."""
    home = Path(os.environ["SRHPM_HOME"])
    builds = home / "data" / "native"
    builds.mkdir(parents=True)
    (builds / server_dir.parent.name).symlink_to(server_dir.parent, target_is_directory=True)
    (builds / "current").write_text(server_dir.parent.name)
    return home


@pytest.fixture
def register(built: Path) -> Callable[[Host, Path, Mode], Callable[[], tuple[str, ...]]]:
    """``register(host, path, mode)`` installs; what it returns uninstalls."""

    def run(host: Host, path: Path, mode: Mode) -> Callable[[], tuple[str, ...]]:
        found: Installation = next(iter(host.find(path)))
        command = ("install", "--host", host.name)
        install(Job(host, found, mode, path, command))
        folder = state_folder(host.name, found.root)
        return lambda: uninstall(read_record(folder, host.name), host, command)

    return run


@pytest.fixture
def stock(fake_server: tuple[str, str]) -> Callable[[Path, Path], None]:
    """``stock(place, dump)`` puts a host's own server there: a stand-in that writes its arguments
    and environment to ``dump`` and answers as the scripted server does."""

    def write(place: Path, dump: Path) -> None:
        program = shlex.join(fake_server)
        place.write_text(f'#!/bin/sh\nexec {program} --dump-env {shlex.quote(str(dump))} "$@"\n')
        place.chmod(0o755)

    return write


class Child:
    """A server that a host has started, with its output line by line."""

    def __init__(self, program: Path, args: Sequence[str], env: Mapping[str, str]) -> None:
        self.lines: list[str] = []
        self._new: queue.Queue[tuple[str, str | None]] = queue.Queue()
        self.process = subprocess.Popen(
            [str(program), *args],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in ("stdout", "stderr")
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: str) -> None:
        for raw in getattr(self.process, stream):
            line = raw.decode("utf-8", "replace").rstrip()
            self.lines.append(line)
            self._new.put((stream, line))
        self._new.put((stream, None))

    def wait_for(
        self, patterns: Sequence[str], seconds: float = 90.0, stream: str | None = None
    ) -> str:
        """The first line that holds one of the patterns in lower case, as Jan looks for it.

        Args:
            stream: ``stdout`` or ``stderr``, where only one is looked at.
        """
        end, open_streams = time.monotonic() + seconds, 2
        while (left := end - time.monotonic()) > 0:
            try:
                source, line = self._new.get(timeout=left)
            except queue.Empty:
                break
            if line is None:
                open_streams -= 1
                if not open_streams:
                    pytest.fail("the server ended: " + "\n".join(self.lines[-20:]))
            elif stream in (None, source) and any(p in line.lower() for p in patterns):
                return line
        pytest.fail(f"none of {patterns} within {seconds} s: " + "\n".join(self.lines[-20:]))

    def wait_healthy(self, url: str, seconds: float = 90.0) -> None:
        """Polls ``/health`` until it answers 200, as LM Studio is assumed to."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process.poll() is not None:
                pytest.fail("exited before becoming healthy: " + "\n".join(self.lines[-20:]))
            try:
                if httpx.get(f"{url}/health", timeout=5).status_code == 200:
                    self._catch_up()
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        pytest.fail("not healthy: " + "\n".join(self.lines[-20:]))

    def _catch_up(self) -> None:
        """What it said up to now may still be on its way: until nothing comes any more."""
        seen = -1
        while seen != len(self.lines):
            seen = len(self.lines)
            time.sleep(0.2)

    def ended(self, seconds: float = 60.0) -> int:
        """Waits until it has ended and all it said is in ``lines``; its exit code."""
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(seconds)
        return code

    def program(self) -> Path | None:
        """What the process is now; ``None`` where the system does not tell."""
        exe = Path(f"/proc/{self.process.pid}/exe")
        return exe.resolve() if sys.platform == "linux" else None

    def stop(self) -> None:
        """Ends it as hosts do that are in no mood to wait."""
        self.process.kill()
        self.process.wait(30)


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """``start(program, args, env)``; whatever still runs at the end is killed."""
    started: list[Child] = []

    def run(program: Path, args: Sequence[str], env: Mapping[str, str] | None = None) -> Child:
        started.append(Child(program, args, env or {}))
        return started[-1]

    yield run
    for child in started:
        if child.process.poll() is None:
            child.stop()


@pytest.fixture
def free_port() -> Callable[[], int]:
    """A port that nobody listens on."""

    def find() -> int:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port: int = s.getsockname()[1]
        return port

    return find


@pytest.fixture
def chat() -> Callable[..., dict[str, Any]]:
    """``chat(url, key, model)``: one streamed answer; its text and the last ``timings``."""

    def ask(url: str, key: str, model: str = "x") -> dict[str, Any]:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": "Count from one to ten."}],
            "stream": True,
            "temperature": 0,
            "max_tokens": 24,
        }
        text, timings = "", {}
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=120
        ) as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if not line.startswith("data: ") or line == "data: [DONE]":
                    continue
                event = json.loads(line[6:])
                timings = event.get("timings") or timings
                for choice in event.get("choices", ()):
                    text += choice.get("delta", {}).get("content") or ""
        return {"text": text, "timings": timings}

    return ask


@pytest.fixture
def ollama(
    tmp_path: Path, fake_server: tuple[str, str], free_port: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Copy]:  # fmt: skip
    """Laid out as install.sh does, with a GPU library that no server can load."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    root = tmp_path / "usr" / "local"
    lib = root / "lib" / "ollama"
    (lib / "cuda_v13").mkdir(parents=True)
    (lib / "cuda_v13" / "libggml-cuda.so").write_bytes(b"\x7fELF of another build")
    (lib / "libggml-base.so.0").write_bytes(b"\x7fELF that must not be mixed in")
    (root / "bin").mkdir()
    (root / "bin" / "ollama").write_text("#!/bin/sh\necho client version is 0.33.0\n")
    (root / "bin" / "ollama").chmod(0o755)
    copy = Copy(root, Shelf(tmp_path / "models"), Ollama(lib, free_port))
    text = DUMP.format(dump=shlex.quote(str(copy.dump)), fake=shlex.join(fake_server))
    (lib / "llama-server").write_text(text)
    (lib / "llama-server").chmod(0o755)
    monkeypatch.setenv("OLLAMA_MODELS", str(copy.shelf.root))
    yield copy
    for runner in copy.ollama.runners:
        if runner.process.poll() is None:
            runner.kill()

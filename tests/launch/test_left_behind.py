"""What remains of a server when its launcher is ended from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

Fake = tuple[str, str]

LAUNCHER = """
import sys, time
from srhpm_plugin.backend import Command
from srhpm_plugin.launch import serve
loading = "--load-seconds" in sys.argv
def tell(p): print("loading", flush=True)
with serve(Command(tuple(sys.argv[1:]), {}), on_progress=tell if loading else None) as server:
    print("ready", server.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def launcher(fake_server: Fake) -> Callable[..., subprocess.Popen[str]]:
    def start(*options: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *fake_server, *map(str, options)],
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def first_line(launcher: subprocess.Popen[str]) -> str:
    assert launcher.stdout is not None
    return launcher.stdout.readline()


def all_gone(pids: list[int]) -> bool:
    for _ in range(200):
        left = [p for p in pids if psutil.pid_exists(p)]
        left = [p for p in left if psutil.Process(p).status() != psutil.STATUS_ZOMBIE]
        if not left:
            return True
        time.sleep(0.05)
    return False


def end(process: subprocess.Popen[str], number: int) -> int:
    """Signals the launcher; the pids of everything below it are collected before."""
    os.kill(process.pid, number)
    return process.wait(timeout=30)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize("phase", ["ready", "loading"])
def test_nothing_is_left(
    launcher: Callable[..., subprocess.Popen[str]], name: str, phase: str
) -> None:
    options = ["--load-seconds", 60] if phase == "loading" else []
    process = launcher(*options)
    assert first_line(process).startswith(phase)
    pids = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
    assert pids
    code = end(process, getattr(signal, name))
    assert all_gone(pids)
    if name == "SIGTERM":
        assert code == 128 + signal.SIGTERM


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help exists on Linux only")
def test_a_server_deaf_to_everything_dies_with_a_killed_launcher(
    launcher: Callable[..., subprocess.Popen[str]],
) -> None:
    process = launcher("--stubborn")
    pid = int(first_line(process).split()[1])
    end(process, signal.SIGKILL)
    assert all_gone([pid])


def test_grandchildren_go_too(
    launcher: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    process = launcher("--grandchild", pid_file)
    pid = int(first_line(process).split()[1])
    process.terminate()
    process.wait(timeout=30)
    assert all_gone([pid, int(pid_file.read_text())])


def test_a_real_server_notices_a_killed_launcher(server_dir: Path, smollm2: Path) -> None:
    argv = [str(server_dir / "llama-server"), "-m", str(smollm2), "-c", "256", "-t", "1"]
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, *argv], stdout=subprocess.PIPE, text=True
    )
    pid = int(first_line(process).split()[1])
    process.kill()
    process.wait(timeout=30)
    assert all_gone([pid])

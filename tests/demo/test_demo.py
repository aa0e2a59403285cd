"""The command from end to end on the real model, and what is left when it is broken off."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = pytest.mark.server

QUICK = ("--size", "tiny", "--tokens", "8", "--rounds", "1", "--threads", "1")


@pytest.fixture(scope="module")
def home(
    smollm2: Path, server_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """An environment with state of its own, shared by the runs here as by a user's reruns."""
    yield {
        **os.environ,
        "SRHPM_HOME": str(tmp_path_factory.mktemp("home")),
        "SRHPM_SERVER": str(
            server_dir / ("llama-server.exe" if os.name == "nt" else "llama-server")
        ),
        "SRHPM_DEMO_MODEL": str(smollm2),
    }


def demo(env: dict[str, str], *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from srhpm_plugin.cli import main; main()", "demo", *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def folder(env: dict[str, str]) -> Path:
    return Path(env["SRHPM_HOME"]) / "cache" / "demo"


def servers(env: dict[str, str]) -> list[psutil.Process]:
    """Servers that run on one of our models."""
    found = []
    for process in psutil.process_iter():
        try:
            if any(env["SRHPM_HOME"] in part for part in process.cmdline()[1:]):
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_interrupted_while_making(home: dict[str, str]) -> None:
    run = demo(home, *QUICK)
    deadline = time.monotonic() + 120
    while not list(folder(home).glob("*.part-*")):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in err
    assert list(folder(home).iterdir()) == []


def test_everything(home: dict[str, str]) -> None:
    run = demo(home, *QUICK, "--json")
    out, err = run.communicate(timeout=500)
    assert run.returncode == 0, err
    report: dict[str, Any] = json.loads(out)
    assert report["params"] > 200e6
    assert Path(report["model"]).is_file()
    assert report["answer"].strip()
    assert report["plan"]["draft"]["path"] == report["drafter"]
    assert [r["engine"] for r in report["runs"]] == ["stock plain", "stock with drafter", "srhpm"]
    assert all(r["tok_s_median"] > 0 for r in report["runs"])
    assert report["runs"][-1]["tokens_equal_to_plain"] is not None
    assert report["verdict"]
    assert {"server", "model", "widen", "drafter", "plan", "launch", "compare"} <= set(
        report["seconds"]
    )
    assert servers(home) == []
    assert not [p for p in folder(home).iterdir() if "part-" in p.name]


def test_a_rerun_streams_and_makes_nothing_again(home: dict[str, str]) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder(home).glob("*.gguf")}
    assert len(before) == 2
    run = demo(home, *QUICK)
    out, err = run.communicate(timeout=500)
    assert run.returncode == 0, err
    assert "tokens through the openai client" in out
    assert "stock with drafter" in out
    assert err.count("made before") == 2
    assert {p: p.stat().st_mtime_ns for p in folder(home).glob("*.gguf")} == before


def test_interrupted_with_a_server_running(home: dict[str, str]) -> None:
    run = demo(home, "--size", "tiny", "--tokens", "400", "--rounds", "2", "--threads", "1")
    deadline = time.monotonic() + 120
    while len([p for p in servers(home) if "llama-server" in p.name()]) == 0:
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    run.send_signal(signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "Traceback" not in err
    deadline = time.monotonic() + 10
    while servers(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert servers(home) == []


def test_no_server(home: dict[str, str], tmp_path: Path) -> None:
    env = {k: v for k, v in home.items() if k != "SRHPM_SERVER"}
    env["SRHPM_HOME"] = str(tmp_path)
    run = demo(env, *QUICK)
    _, err = run.communicate(timeout=60)
    if run.returncode == 0:
        pytest.fail("there is a wheel of the server in this environment")
    assert run.returncode == 1
    assert "srhpm-plugin native build" in err.splitlines()[-1]

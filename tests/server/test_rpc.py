"""Layers on RPC workers: here on two ports, and across a network between two namespaces."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.machine.workers import read_workers

pytestmark = pytest.mark.server

PROMPT = "Write three sentences about the sea in winter."
REPEATING = "List the numbers: 1, 2, 3, 4, 5, 6, 7, 8. List the numbers again: 1, 2, 3, 4,"
# Weights that a worker holds are not packed, so upstream's kernels multiply by them; ours would by
# those of this machine.
SAME = {"SRHPM_KERNELS": "off"}
EXACT = {"SRHPM_EXACT": "8", "OMP_WAIT_POLICY": "passive"}


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(*argv: str | Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        [str(a) for a in argv],
        env={**os.environ, **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def worker(server_dir: Path) -> Iterator[str]:
    """``HOST:PORT`` of a worker with the CPU."""
    port = free_port()
    args = ("-H", "127.0.0.1", "-p", str(port), "-t", "1")
    with running(server_dir / "ggml-rpc-server", *args, **SAME, **EXACT):
        for _ in range(200):
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"


@pytest.fixture
def workers(server_dir: Path) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(worker(server_dir)) for _ in range(2)]


def said(answer: dict[str, Any]) -> tuple[Any, Any]:
    return answer["tokens"], answer["completion_probabilities"]


def test_answers_are_those_of_this_machine(
    start: Any, workers: list[str], draft_args: list[str | Path]
) -> None:
    """Layers here, there and here again, with a drafter and without: to the last bit."""
    remote = ["--rpc", ",".join(workers), "--device", "RPC0,RPC1", "-ngl", "12"]
    remote += ["--fit", "off", "-lv", "5"]
    env = {**SAME, "SRHPM_GPU_LAYERS": "3-8,20-25@1"}
    simple = [*draft_args, "--spec-draft-device", "none", "--spec-draft-ngl", "0"]
    with start("--no-repack", env=SAME) as api:
        want = said(api.complete(PROMPT, 48, n_probs=3))
    for args in ([], simple):
        with start("--no-repack", *remote, *args, env=env) as api:
            answer = api.complete(PROMPT, 48, n_probs=3)
        log = api.log.read_text("utf-8", "replace")
        assert all(f"[{endpoint}] model buffer size" in log for endpoint in workers)
        assert said(answer) == want
        if args:
            speculation = answer["timings"]["speculation"]
            assert 0 < speculation["accepted"] < speculation["drafted"]


def test_what_is_measured(server_dir: Path, workers: list[str]) -> None:
    found = read_workers(workers, server_dir / "llama-server")
    assert [(gpu.name, gpu.link.endpoint) for gpu in found if gpu.link] == [
        ("RPC0", workers[0]),
        ("RPC1", workers[1]),
    ]
    for gpu in found:
        assert gpu.link is not None
        assert 0 < gpu.free <= gpu.total
        assert 0 < gpu.link.round_trip_ms < 1000
        assert min(gpu.link.up_bytes_s, gpu.link.down_bytes_s, gpu.link.read_bytes_s) > 1e6


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def namespaces() -> Iterator[tuple[Run, list[str]]]:
    """``run(*argv)`` in one network, 10.77.0.1, and what puts a command into another, 10.77.0.2."""
    tools = ("unshare", "nsenter", "ip")
    if platform.system() != "Linux" or not all(map(shutil.which, tools)):
        pytest.skip("network namespaces need Linux, util-linux and iproute2")
    own = [] if sys.platform != "win32" and os.geteuid() == 0 else ["-U", "-r"]
    if subprocess.run(["unshare", *own, "-n", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system gives no network namespaces")

    def inside(process: subprocess.Popen[bytes]) -> list[str]:
        user = ["-U", "--preserve-credentials"] if own else []
        return ["nsenter", "-t", str(process.pid), *user, "-n"]

    def settled(process: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
        mine = Path("/proc/self/ns/net").readlink()
        while Path(f"/proc/{process.pid}/ns/net").readlink() == mine:
            time.sleep(0.02)
        return process

    with ExitStack() as stack:
        first = settled(stack.enter_context(running("unshare", *own, "-n", "sleep", "600")))
        enter = inside(first)
        outer = ["unshare", "-n", "sleep", "600"]
        second = stack.enter_context(running(*(enter if own else []), *outer))
        time.sleep(0.5)
        there = inside(settled(second))

        def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [*enter, *map(str, argv)],
                env={**os.environ, **env},
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
            )

        for line in (
            f"ip link add near type veth peer name far netns {second.pid}",
            "ip addr add 10.77.0.1/24 dev near",
            "ip link set near up",
            "ip link set lo up",
        ):
            done = run(*line.split())
            assert done.returncode == 0, done.stderr
        for line in ("ip addr add 10.77.0.2/24 dev far", "ip link set far up"):
            subprocess.run([*there, *line.split()], check=True, capture_output=True)
        yield run, there


def test_across_a_network(
    server_dir: Path, smollm2: Path, namespaces: tuple[Run, list[str]]
) -> None:
    """Planned, started and compared with plain decoding on one machine, layers on another."""
    run, there = namespaces
    port = free_port()
    endpoint = f"10.77.0.2:{port}"
    cli = [sys.executable, "-m", "srhpm_plugin"]
    ours = {"SRHPM_SERVER": str(server_dir / "llama-server"), "OMP_WAIT_POLICY": "passive"}
    asked = [str(smollm2), "--rpc", endpoint, "--draft", "ngram", "--gpu-layers", "12"]
    silent = run(*cli, "plan", *asked, **ours)
    assert silent.returncode == 1
    assert f"the RPC worker {endpoint} does not answer" in silent.stderr
    args = ("-H", "10.77.0.2", "-p", str(port), "-t", "1")
    with running(*there, server_dir / "ggml-rpc-server", *args, **EXACT):
        time.sleep(1)
        plan = json.loads(run(*cli, "plan", *asked, "--json", **ours).stdout)
        done = run(*cli, "verify", *asked, "--tokens", "32", "--json", **ours)
    assert plan["rpc"] == [endpoint]
    assert [p["device"] for p in plan["placement"]] == ["CPU", "RPC0"]
    assert any(f"RPC worker {endpoint}" in reason for reason in plan["reasons"])
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["equal"] is True

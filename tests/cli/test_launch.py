"""``launch`` as a user sees it."""

from __future__ import annotations

import _thread
import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from srhpm_plugin.launch import ports
from srhpm_plugin.launch.client import Client

Shell = Callable[..., tuple[int, str, str]]


def interrupt_after_use(port: int, key: str | None = None) -> threading.Thread:
    """Asks the server something once it is there, then does as Ctrl-C does."""

    def use() -> None:
        for _ in range(400):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            time.sleep(0.05)
        with Client(f"http://127.0.0.1:{port}", key) as client:
            client.complete("hello", 4)
        time.sleep(0.7)
        _thread.interrupt_main()

    thread = threading.Thread(target=use)
    thread.start()
    return thread


def ends(pid: int) -> bool:
    """Whether a process is gone soon; nobody may reap it here, so a zombie counts as gone."""
    for _ in range(100):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_prints_the_plan_and_starts_nothing(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", ["--die-loading", 0])
    for extra in ([], ["--run", "--dry-run"]):
        code, out, _ = shell("launch", smollm2, "--backend", "fake", *extra)
        assert code == 0
        assert str(smollm2) in out
        assert "Nothing was started; add --run to start it" in out


def test_without_a_server_says_how_to_get_one(
    shell: Shell, fake_backend: Any, smollm2: Path
) -> None:
    fake_backend("fake").built = False
    code, out, _ = shell("launch", smollm2, "--backend", "fake")
    assert code == 0
    assert "first type: make fake" in out


def test_json_plan(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake")
    code, out, _ = shell("launch", smollm2, "--backend", "fake", "--json", "--port", 8123)
    assert code == 0
    plan = json.loads(out)
    assert plan["url"] == "http://127.0.0.1:8123"
    assert plan["model"]["path"] == str(smollm2)
    assert plan["warnings"] == []


def test_more_context_than_trained_is_a_warning(
    shell: Shell, fake_backend: Any, smollm2: Path
) -> None:
    fake_backend("fake")
    code, _, err = shell("launch", smollm2, "--backend", "fake", "--ctx", 100_000)
    assert code == 0
    assert err.startswith("warning: context of ")


def test_runs_until_ctrl_c(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", ["--print", "print_timing: prompt eval time = 1 ms"])
    port = ports.free_port()
    thread = interrupt_after_use(port)
    code, out, _ = shell("launch", smollm2, "--backend", "fake", "--run", "--port", port)
    thread.join()
    assert code == 0
    assert f"Ready at http://127.0.0.1:{port} " in out
    assert "curl" in out
    assert "1 request, 30 tokens, 60.0 tok/s, 6 of 8 drafted tokens accepted (75%)" in out
    ports.require_free("127.0.0.1", port)


def test_json_events_and_a_key(
    shell: Shell, fake_backend: Any, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRHPM_API_KEY", "secret-key")
    monkeypatch.setenv("LLAMA_ARG_CTX_SIZE", "7")
    fake_backend("fake")
    port = ports.free_port()
    thread = interrupt_after_use(port, "secret-key")
    code, out, err = shell(
        "launch", smollm2, "--backend", "fake", "--run", "--json", "--port", port
    )
    thread.join()
    assert code == 0
    ready, stopped = (json.loads(line) for line in out.splitlines())
    assert ready["event"] == "ready"
    assert ready["url"] == f"http://127.0.0.1:{port}"
    assert stopped["event"] == "stopped"
    assert stopped["phase"] == "serving"
    assert stopped["acceptance"] == 0.75
    assert "secret-key" not in out + err
    assert "LLAMA_ARG_CTX_SIZE from the environment is left out" in err


def test_ctrl_c_while_loading_ends_as_afterwards(
    shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    sleeper = tmp_path / "pid"
    fake_backend("fake", ["--load-seconds", 60, "--grandchild", sleeper])

    def interrupt() -> None:
        while not sleeper.exists() or not sleeper.read_text():
            time.sleep(0.05)
        time.sleep(0.5)
        _thread.interrupt_main()

    for more in ([], ["--json"]):
        sleeper.unlink(missing_ok=True)
        thread = threading.Thread(target=interrupt)
        thread.start()
        port = ports.free_port()
        code, out, err = shell(
            "launch", smollm2, "--backend", "fake", "--run", "--port", port, *more
        )
        thread.join()
        assert code == 0
        assert "Aborted" not in err
        if more:
            event = json.loads(out)
            assert (event["event"], event["phase"], event["tokens"]) == ("stopped", "loading", 0)
        else:
            assert out.endswith("\nStopped while loading.\n")
        ports.require_free("127.0.0.1", port)
        assert ends(int(sleeper.read_text())), "nor anything that the server started"


def test_its_death_is_one_line(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", ["--print", "error: it hurts", "--die-loading", 9])
    code, _, err = shell(
        "launch", smollm2, "--backend", "fake", "--run", "--port", ports.free_port()
    )
    assert code == 1
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "did not start: killed" in last
    assert "last log line: error: it hurts; see the log " in last


def test_port_in_use(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for more in ([], ["--json"], ["--exec"]):
            code, out, err = shell(
                "launch", smollm2, "--backend", "fake", "--run", "--port", port, *more
            )
            assert code == 1
            assert out == "", "said before the plan is made and printed"
            assert f"error: port {port} is in use" in err


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b", "203.0.113.7", "300.1.1.1"])
def test_an_address_that_is_not_ours(
    host: str, shell: Shell, fake_backend: Any, smollm2: Path
) -> None:
    fake_backend("fake")
    code, out, err = shell(
        "launch", smollm2, "--backend", "fake", "--run", "--host", host, "--api-key", "k1"
    )
    assert (code, out) == (1, "")
    assert err.startswith(f"error: cannot listen on {host}: ")
    assert err.count("\n") == 1


def test_refusals(shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path) -> None:
    fake_backend("fake")
    code, _, err = shell("launch", smollm2, "--backend", "fake", "--host", "0.0.0.0")
    assert (code, "--api-key" in err) == (1, True)
    code, _, err = shell("launch", tmp_path / "none.gguf", "--backend", "fake")
    assert (code, err.startswith("error: ")) == (1, True)
    code, _, err = shell("launch", smollm2, "--exec")
    assert (code, "--exec needs --run" in err) == (2, True)

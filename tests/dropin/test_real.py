"""The whole way on the patched server and a real model: started as a host does it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from srhpm_plugin.dropin import records
from srhpm_plugin.dropin.records import LIVE, read_live
from srhpm_plugin.dropin.status import blocked_models, launches
from srhpm_plugin.launch import ports

PROMPT = "The three largest rivers of Europe are the"


@pytest.fixture(scope="module")
def coarse(server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model, quantized so coarsely that it is wrong now and then."""
    path = tmp_path_factory.mktemp("coarse") / "coarse.gguf"
    argv = [server_dir / "llama-quantize", "--allow-requantize", smollm2, path, "Q2_K"]
    subprocess.run([str(a) for a in argv], check=True, capture_output=True)
    return path


@pytest.fixture
def serving(place: Any, real_server: Path, smollm2: Path) -> Callable[..., Any]:
    """``serving(*args, env={})``: the drop-in started with the model, and its address once it
    answers; what the process has written is in ``log``."""

    @contextmanager
    def start(
        *args: str | Path, slots: str = "1", env: Mapping[str, str] | None = None
    ) -> Iterator[Any]:
        place.note(original=real_server)
        port = ports.free_port()
        argv = [place.program, "--model", smollm2, "--port", port, "--host", "127.0.0.1"]
        argv += ["--no-webui", "--offline", "-c", "1024", "-np", slots, "--log-verbosity", "4"]
        settings = {
            "SRHPM_SERVER": str(real_server),
            "SRHPM_EXACT": "8",
            "OMP_WAIT_POLICY": "passive",
        }
        log = place.program.with_name("log")
        with (
            log.open("w") as file,
            subprocess.Popen(
                [str(a) for a in (*argv, *args)],
                env={**place.env, **settings, **(env or {})},
                stdout=file,
                stderr=file,
            ) as process,
        ):
            url = f"http://127.0.0.1:{port}"
            try:
                for _ in range(1200):
                    assert process.poll() is None, log.read_text()
                    try:
                        if httpx.get(url + "/health", trust_env=False).status_code == 200:
                            break
                    except httpx.HTTPError:
                        pass
                    time.sleep(0.1)
                yield url, process, log
            finally:
                process.kill()

    return start


def tokens(url: str, n: int = 48) -> list[int]:
    body = {"prompt": PROMPT, "n_predict": n, "temperature": 0.0, "return_tokens": True}
    answer = httpx.post(url + "/completion", json=body, timeout=120, trust_env=False)
    found: list[int] = answer.json()["tokens"]
    return found


@pytest.fixture(scope="module")
def plain_tokens() -> list[list[int]]:
    return []


@pytest.mark.parametrize("drafted", [False, True])
def test_the_same_answer_as_the_hosts_own_server(
    drafted: bool, serving: Callable[..., Any], coarse: Path, plain_tokens: list[list[int]]
) -> None:
    if not plain_tokens:
        with serving("-t", "2", env={"SRHPM_DROPIN": "off"}) as (url, _, log):
            plain_tokens.append(tokens(url))
            assert "SR-HPM" not in log.read_text()
    args = ["--spec-type", "draft-simple", "--spec-draft-model", coarse] if drafted else []
    with serving("-t", "2", *args) as (url, process, log):
        assert tokens(url) == plain_tokens[0]
        (row,) = launches(1)
        assert row["state"] == "running"
        assert row["tokens"] > 0
        assert row["tok_s"] is not None
        assert ("draft-simple" if drafted else "ngram") in row["drafter"]
        if drafted:
            assert 0 < row["acceptance"] <= 1
        lines = [line for line in log.read_text().splitlines() if line.startswith("srhpm:")]
        assert any("runs on SR-HPM" in line for line in lines)
        for word in ("error:", "failed to allocate", "out of memory"):
            assert not any(word in line for line in lines)
        # the record is the process's own
        record = json.loads(next(records.folder().glob("*.json")).read_text())
        assert record["pid"] == process.pid
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    assert launches(1)[0]["state"] == "ended"
    assert blocked_models() == []


def test_two_clients_at_once_where_the_host_says_no_number(serving: Callable[..., Any]) -> None:
    """As with the host's own server: neither waits for the other, and either may use all of the
    context."""
    body = {"prompt": PROMPT, "n_predict": 600, "temperature": 0.0, "ignore_eos": True}
    with serving("-t", "2", slots="-1", env={"SRHPM_EXACT": ""}) as (url, _, log):
        assert "runs on SR-HPM" in log.read_text()
        long = {**body, "stream": True}
        with httpx.stream("POST", url + "/completion", json=long, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            assert tokens(url, 4)
            rest = [line for line in lines if line.startswith("data: ")]
        assert len(rest) > 50, "the second had to wait for the first"
        assert json.loads(rest[-1][6:])["tokens_predicted"] == 600
        slots = httpx.get(url + "/slots", trust_env=False).json()
        assert [slot["n_ctx"] for slot in slots] == [1024] * 4


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="no sockets with a path")
def test_a_socket_with_a_path(
    place: Any, real_server: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As Docker Model Runner asks for one; a path is short."""
    place.note(original=real_server)
    path = tmp_path_factory.mktemp("s") / "x.sock"
    words = ["-ngl", "999", "--metrics", "--no-mmap", "--threads", "2", "--model", smollm2]
    argv = [place.program, *words, "--host", path, "--ctx-size", "1024", "--jinja"]
    env = {**place.env, "SRHPM_SERVER": str(real_server)}
    with (
        place.program.with_name("log").open("w") as log,
        subprocess.Popen([str(a) for a in argv], env=env, stdout=log, stderr=log) as process,
        httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://x") as client,
    ):
        try:
            for _ in range(1200):
                assert process.poll() is None, log.name
                with contextlib.suppress(httpx.HTTPError):
                    if client.get("/health").status_code == 200:
                        break
                time.sleep(0.1)
            answer = client.post("/completion", json={"prompt": PROMPT, "n_predict": 4}, timeout=60)
            assert "speculation" in answer.json()["timings"]
        finally:
            process.kill()


def test_a_failed_start_goes_to_the_hosts_server_next_time(
    place: Any, real_server: Path, smollm2: Path, stand_in: Callable[..., Path], tmp_path: Path
) -> None:
    args = ["-m", str(smollm2), "--chat-template-file", str(tmp_path / "gone")]
    env = {"SRHPM_SERVER": str(real_server)}
    first = place.run(*args, env=env)
    assert first.returncode != 0
    assert "runs on SR-HPM" in first.stderr
    (row,) = blocked_models()
    told = place.started(*args, env=env)
    assert (told["who"], told["argv"]) == ("original", args)
    assert "status --retry" in told["stderr"]
    assert launches(1)[0]["state"] == "handed over"
    assert records.clear(row["model"]) == [row["model"]]
    assert place.run(*args, env=env).returncode != 0


def test_a_port_in_use_says_nothing_of_the_model(
    place: Any, real_server: Path, smollm2: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        args = ["-m", smollm2, "--host", "127.0.0.1", "--port", str(taken.getsockname()[1])]
        done = place.run(*args, env={"SRHPM_SERVER": str(real_server)})
    assert done.returncode != 0
    assert launches(1)[0]["state"] == "failed"
    assert blocked_models() == []


@pytest.fixture
def loading(real_server: Path, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """``loading()``: a server that loads for ever, from a pipe that nobody writes to."""
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    processes = []

    def start() -> tuple[subprocess.Popen[bytes], Path]:
        record = tmp_path / "record.json"
        live = record.with_suffix(LIVE)
        live.unlink(missing_ok=True)
        env = {**os.environ, records.RECORD_VARIABLE: str(live)}
        argv = [str(real_server), "-m", str(pipe), "--port", str(ports.free_port())]
        process = subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL)
        processes.append(process)
        for _ in range(200):
            if live.exists():
                time.sleep(0.5)  # until it waits for the pipe
                return process, record
            time.sleep(0.05)
        pytest.fail("no live file was written")

    yield start
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.skipif(os.name != "posix", reason="signals and named pipes")
@pytest.mark.parametrize(
    ("number", "state", "reason"),
    [
        ("SIGSEGV", "failed", "bad memory access"),
        ("SIGABRT", "failed", "aborted"),
        ("SIGILL", "failed", "illegal instruction"),
        ("SIGBUS", "failed", "bus"),
        ("SIGTERM", "stopped", "asked to stop"),
        ("SIGINT", "stopped", "asked to stop"),
        ("SIGKILL", "loading", ""),
    ],
)
def test_ends_while_loading(
    number: str, state: str, reason: str, loading: Callable[[], Any]
) -> None:
    process, record = loading()
    assert read_live(record).state == "loading"
    process.send_signal(signal.Signals[number])
    assert process.wait(30) == -signal.Signals[number], "the host sees how it ended"
    live = read_live(record)
    assert live.state == state
    assert reason in live.reason


def test_a_model_that_cannot_be_loaded(real_server: Path, smollm2: Path, tmp_path: Path) -> None:
    """The reason is what llama.cpp says of it."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(smollm2.read_bytes()[:2_000_000])
    record = tmp_path / "record.json"
    env = {**os.environ, records.RECORD_VARIABLE: str(record.with_suffix(LIVE))}
    argv = [str(real_server), "-m", str(broken), "--port", str(ports.free_port())]
    done = subprocess.run(argv, env=env, capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    live = read_live(record)
    assert live.state == "failed"
    assert live.reason.startswith("loading the model: ")
    assert len(live.reason) > len("loading the model: it gave up")


def test_without_the_variable_nothing_is_written(real_server: Path, tmp_path: Path) -> None:
    subprocess.run(
        [str(real_server), "-m", "gone.gguf"], cwd=tmp_path, capture_output=True, check=False
    )
    assert list(tmp_path.iterdir()) == []


def test_no_secret_is_kept(place: Any, real_server: Path, smollm2: Path, tmp_path: Path) -> None:
    """Keys, tokens and prompts of a start are in no file of ours."""
    secrets = ["key-hunter2", "token-hunter3", "prompt-hunter4", "env-hunter5"]
    args = ["-m", smollm2, f"--api-key={secrets[0]}", "--hf-token", secrets[1]]
    args += ["--chat-template", secrets[2], "--chat-template-file", tmp_path / "gone"]
    env = {"SRHPM_SERVER": str(real_server), "LLAMA_API_KEY": secrets[3], "HF_TOKEN": secrets[3]}
    for _ in range(2):
        place.run(*args, env=env)
    files = [path for path in place.home.rglob("*") if path.is_file()]
    assert any(path.suffix == ".plan" for path in files)
    assert any(path.parent == records.folder() for path in files)
    for path in files:
        content = path.read_bytes()
        for secret in secrets:
            assert secret.encode() not in content, path

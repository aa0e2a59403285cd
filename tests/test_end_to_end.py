"""The installed command on a real model, on a split copy of it, and on damaged files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest


@pytest.fixture(scope="module")
def run(server_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """Runs ``srhpm-plugin ARGS`` as a user would, with a state folder of its own."""
    env = {
        **os.environ,
        "SRHPM_HOME": str(tmp_path_factory.mktemp("home")),
        "SRHPM_SERVER": str(server_dir / "llama-server"),
        "HF_HOME": str(tmp_path_factory.mktemp("hf")),
    }

    def _run(*args: str | Path, wait: bool = True) -> Any:
        argv = [sys.executable, "-m", "srhpm_plugin", *map(str, args)]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(argv, env=env, **pipes)
        if not wait:
            return process
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(argv, process.returncode, out, err)

    return _run


@pytest.fixture(scope="module", params=["whole", "split"])
def model(
    request: pytest.FixtureRequest,
    smollm2: Path,
    split_gguf: Callable[[Path, Path, int], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The model in a folder of its own: as one file, and in three parts."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "split":
        return split_gguf(smollm2, folder, 3)
    link = folder / smollm2.name
    os.link(smollm2, link) if folder.stat().st_dev == smollm2.stat().st_dev else link.symlink_to(
        smollm2
    )
    return link


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_plan(run: Callable[..., Any], model: Path) -> None:
    done = run("plan", model, "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["kind"] == "srhpm"
    assert plan["model"]["arch"] == "llama"
    assert plan["draft"]["type"] == "ngram"
    assert str(model) in plan["argv"]
    assert int(plan["env"]["SRHPM_EXACT"]) == 1 + plan["draft"]["n_max"]
    words = run("plan", model)
    assert words.returncode == 0
    assert "\x1b" not in words.stdout, "no colours in a pipe"


def test_launch_answers_the_openai_client_and_leaves_on_ctrl_c(
    run: Callable[..., Any], model: Path
) -> None:
    port = free_port()
    process = run("launch", model, "--run", "--port", port, wait=False)
    try:
        for _ in range(600):
            assert process.poll() is None, process.stderr.read()
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.1)
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none")
        stream = client.chat.completions.create(
            model="any",
            messages=[{"role": "user", "content": "Say hello."}],
            temperature=0,
            max_tokens=16,
            stream=True,
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
        assert len(text) > 3
        process.send_signal(signal.CTRL_C_EVENT if sys.platform == "win32" else signal.SIGINT)  # type: ignore[attr-defined]
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in out + err
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)


def test_verify(run: Callable[..., Any], model: Path) -> None:
    done = run("verify", model, "--draft", "ngram", "--tokens", 96, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["equal"] is True
    assert result["first_difference"] is None
    assert result["drafted"] > 0


def check_one_line(done: Any, message: str) -> None:
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert message in lines[0]


def test_damaged_files_are_one_line(
    run: Callable[..., Any], damaged_gguf: tuple[Path, str]
) -> None:
    path, message = damaged_gguf
    check_one_line(run("plan", path), message)


@pytest.mark.parametrize("command", [["launch", "--run"], ["verify"], ["bench", "decode"]])
def test_other_commands_refuse_alike(
    run: Callable[..., Any], tmp_path: Path, command: list[str]
) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
    check_one_line(run(*command, path), "git lfs pull")


def test_unknown_model(run: Callable[..., Any]) -> None:
    done = run("plan", "no-such-model")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_wrong_usage_is_exit_2(run: Callable[..., Any]) -> None:
    assert run("plan").returncode == 2
    assert run("plan", "x", "--ctx", "many").returncode == 2

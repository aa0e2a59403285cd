"""RamaLama itself, from PyPI, in an environment of its own: installed, models listed, picked, asked
through ``openai``, taken out with its environment as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import openai
import psutil
import pytest

from srhpm_plugin.integrations.ramalama import RamaLama

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = RamaLama()
VERSION = "0.25.0"
ASKED = [{"role": "user", "content": "Count from one to ten."}]


@pytest.fixture(scope="module")
def ramalama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with RamaLama, as pipx makes one."""
    folder = tmp_path_factory.mktemp("ramalama") / "venv"
    venv.create(folder, with_pip=False)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    subprocess.run([*pip, f"ramalama=={VERSION}"], check=True, timeout=300)
    return folder


@pytest.fixture
def user(
    ramalama: Path, tmp_path: Path, stock: Callable, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """``user(*words)`` types ``ramalama …`` and returns what it says. No container engine is on
    the PATH, a ``llama-server`` that is not ours is."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stock(programs / "llama-server", tmp_path / "stock.json")
    (programs / "ramalama").symlink_to(ramalama / "bin" / "ramalama")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name, value in {
        "HOME": tmp_path / "user",
        "XDG_CONFIG_HOME": tmp_path / "user" / "config",
        "XDG_DATA_HOME": tmp_path / "user" / "data",
        "RAMALAMA_STORE": tmp_path / "store",
        "RAMALAMA__BENCHMARKS__STORAGE_FOLDER": tmp_path / "benchmarks",
    }.items():
        monkeypatch.setenv(name, str(value))
    (tmp_path / "user").mkdir()

    def run(*words: str) -> str:
        done = subprocess.run(
            ["ramalama", "--nocontainer", *words],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        return done.stdout

    return run


@pytest.fixture
def install(user: Callable, register: Callable) -> Iterator[Callable[[], Callable[[], object]]]:
    """``install()`` puts ours into the environment that the tests share; what it returns takes it
    out, as does the end of the test."""
    undo: list[Callable[[], object]] = []

    def run() -> Callable[[], object]:
        undo.append(register(HOST, None, "all"))
        return undo[-1]

    yield run
    for take_out in undo:
        take_out()


def test_its_runtime(
    ramalama: Path,
    user: Callable,
    smollm2: Path,
    tmp_path: Path,
    install: Callable,
    start: Callable,
    free_port: Callable,
    tree: Callable,
) -> None:
    user("pull", f"file://{smollm2}")
    assert "srhpm" not in json.loads(user("info"))["Runtimes"]["Available"]
    before = tree(ramalama)
    undo = install()
    (found,) = HOST.find(None)
    assert (found.version, HOST.registered(found)) == (VERSION, True)
    (model,) = HOST.models(found)
    assert user("ls", "--noheading").split()[0] == model.name == f"file://{smollm2}"
    assert "srhpm" in json.loads(user("info"))["Runtimes"]["Available"]

    port = free_port()
    serve = ["--nocontainer", "--runtime", "srhpm", "serve", "-p", str(port), f"file://{smollm2}"]
    child = start(tmp_path / "bin" / "ramalama", serve)
    child.wait_healthy(f"http://127.0.0.1:{port}")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=120)
    (name,) = [m.id for m in client.models.list()]
    said = client.chat.completions.create(
        model=name, messages=ASKED, temperature=0, max_tokens=16  # type: ignore[arg-type]
    )  # fmt: skip
    assert said.choices[0].message.content
    assert said.model_extra["timings"]["speculation"]["type"] != "none"  # type: ignore[index]
    assert any(f"{name} runs on SR-HPM" in line for line in child.lines)
    _end(child.process.pid)

    undo()
    assert tree(ramalama) == before
    assert "srhpm" not in json.loads(user("info"))["Runtimes"]["Available"]


def test_its_own_runtime_is_as_before(user: Callable, smollm2: Path, install: Callable) -> None:
    install()
    said = user("--dryrun", "serve", f"file://{smollm2}")
    assert said.split()[0] == "llama-server"
    ours = user("--dryrun", "--runtime", "srhpm", "serve", f"file://{smollm2}")
    assert Path(ours.split()[0]).parent.name == "srhpm_ramalama"
    assert ours.split()[1:] == said.split()[1:]


def test_in_a_container_it_is_ramalamas_own(
    user: Callable, install: Callable, tmp_path: Path
) -> None:
    """With an engine on the PATH and no ``--nocontainer``: ours cannot be in its image."""
    install()
    engine = tmp_path / "bin" / "podman"
    engine.write_text("#!/bin/sh\nexit 0\n")
    engine.chmod(0o755)
    done = subprocess.run(
        ["ramalama", "--container", "--runtime", "srhpm", "--dryrun", "serve", "file:///nowhere.gguf"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert "use --nocontainer" in done.stderr
    assert "srhpm_ramalama" not in done.stdout
    assert "llama-server" in done.stdout


def test_a_ramalama_whose_runtime_has_moved(
    ramalama: Path, user: Callable, install: Callable
) -> None:
    """Every other runtime goes on working, ours says why it does not."""
    install()
    (moved,) = ramalama.glob("lib/*/site-packages/ramalama/plugins/runtimes/inference/llama_cpp.py")
    points = next(ramalama.glob("lib/*/site-packages/ramalama-*.dist-info/entry_points.txt"))
    text = points.read_text()
    away = moved.with_name("llama_cpp_of_tomorrow.py")
    moved.rename(away)
    points.write_text(text.replace("inference.llama_cpp:", "inference.llama_cpp_of_tomorrow:"))
    try:
        server = moved.parents[3] / "model_server.py"
        kept = server.read_text()
        server.write_text(kept.replace("inference.llama_cpp ", "inference.llama_cpp_of_tomorrow "))
        assert "srhpm" in json.loads(user("info"))["Runtimes"]["Available"]
        done = subprocess.run(
            ["ramalama", "--runtime", "srhpm", "serve", "x"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert "update srhpm-plugin" in done.stderr + done.stdout
    finally:
        away.rename(moved)
        points.write_text(text)
        server.write_text(kept)


def _end(pid: int) -> None:
    """Ends RamaLama's server, as Ctrl+C does; RamaLama killed alone leaves it running."""
    processes = psutil.Process(pid).children(recursive=True)
    for process in processes:
        process.terminate()
    assert not psutil.wait_procs(processes, timeout=30)[1]

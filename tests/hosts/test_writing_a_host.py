"""``docs/writing-a-host.md``: the package it builds, installed as a third party's and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-host.md"
BLOCK = re.compile(r"^```\w+ file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with our package and, built from the page, the third party's."""
    folder = tmp_path_factory.mktemp("tinychat")
    source = folder / "source"
    source.mkdir()
    for name, code in BLOCK.findall(PAGE.read_text("utf-8")):
        with (source / name).open("a", encoding="utf-8") as file:
            file.write(code)
    venv.create(folder / "venv", with_pip=False)
    interpreter = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", str(source)], check=True, timeout=300)
    (packages,) = folder.glob("venv/lib/*/site-packages")
    here = sysconfig.get_paths()["purelib"]
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    return interpreter


@pytest.fixture
def app(tmp_path: Path, smollm2: Path, stock: Callable) -> Path:
    """Tinychat's folder, as the page has it."""
    folder = tmp_path / "user" / ".tinychat"
    folder.mkdir(parents=True)
    stock(tmp_path / "llama-server", tmp_path / "stock.json")
    settings = {
        "server": str(tmp_path / "llama-server"),
        "models": {"smol": {"file": str(smollm2)}},
    }
    (folder / "tinychat.json").write_text(json.dumps(settings))
    return folder


def test_the_page(
    python: Path, app: Path, built: Path, start: Callable, free_port: Callable, tree: Callable
) -> None:
    user = {**os.environ, "HOME": str(app.parent)}

    def type_(line: str) -> str:
        done = subprocess.run(
            [str(python), "-m", "srhpm_plugin", *line.split()[1:]],
            env=user, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    (console,) = re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    lines = console.splitlines()
    assert lines[0] == "pip install ."
    before = tree(app)
    said = {}
    for line in lines[1:-1]:
        said[line] = type_(line)
        if "--dry-run" in line:
            assert tree(app) == before
    assert "Tinychat" in said["srhpm-plugin hosts"]
    assert "smol-srhpm" in said["srhpm-plugin models --host tinychat"]
    assert "in place" in said["srhpm-plugin status"]

    settings = json.loads((app / "tinychat.json").read_text())
    twin = settings["models"]["smol-srhpm"]
    port = free_port()
    line = ["--model", twin["file"], "--alias", "smol-srhpm", "--port", str(port)]
    child = start(Path(twin["server"]), line, user)
    child.wait_healthy(f"http://127.0.0.1:{port}")
    assert any("smol-srhpm runs on SR-HPM" in line for line in child.lines)
    answer = httpx.post(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
        timeout=120,
    )
    assert "speculation" in answer.json()["timings"]
    assert "smol-srhpm" in type_("srhpm-plugin status")
    child.process.terminate()
    child.process.wait(30)

    type_(lines[-1])
    assert tree(app) == before


def test_mode_all_hands_over_with_the_hosts_words(
    python: Path, app: Path, built: Path, start: Callable, free_port: Callable, tmp_path: Path
) -> None:
    """Where nothing is known that would gain, or the file is none, Tinychat's own server runs."""
    user = {**os.environ, "HOME": str(app.parent)}
    words = ["install", "--host", "tinychat"]
    subprocess.run([str(python), "-m", "srhpm_plugin", *words], env=user, check=True, timeout=120)
    settings = json.loads((app / "tinychat.json").read_text())
    (tmp_path / "no-model.gguf").write_bytes(b"GGUF")
    port = free_port()
    line = ["--model", str(tmp_path / "no-model.gguf"), "--alias", "odd", "--port", str(port)]
    child = start(Path(settings["server"]), line, user)
    child.wait_healthy(f"http://127.0.0.1:{port}")
    assert json.loads((tmp_path / "stock.json").read_text())["argv"][-len(line) :] == line

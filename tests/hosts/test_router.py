"""llama.cpp's own router: installed, models listed and picked, asked through ``openai``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import openai
import pytest

from srhpm_plugin.integrations.llamaserver import LlamaServerRouter

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = LlamaServerRouter()
ASKED = [{"role": "user", "content": "Count from one to ten."}]


@pytest.fixture
def presets(
    tmp_path: Path, smollm2: Path, stock: Callable, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The user's file of presets, and a ``llama-server`` on the PATH that is not ours."""
    programs = tmp_path / "bin"
    programs.mkdir()
    stock(programs / "llama-server", tmp_path / "stock.json")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    path = tmp_path / "mine" / "models.ini"
    path.parent.mkdir()
    path.write_text(
        "version = 1\n[*]\nctx-size = 1024   ; small\nparallel = 1\nthreads = 2\n\n"
        f"# my model\n[small]\nmodel = {smollm2}\nload-on-startup = false\n"
    )
    return path


def test_pick_by_name(
    presets: Path, register: Callable, start: Callable, free_port: Callable, tree: Callable
) -> None:
    before, port = tree(presets.parent), free_port()
    undo = register(HOST, presets, "select")
    (found,) = HOST.find(presets)
    models = {m.name: m for m in HOST.models(found)}
    assert (models["small"].twin, models["small-srhpm"].twin) == (False, True)
    # What the user is told to type, with other arguments of theirs.
    tools = Path(os.environ["SRHPM_HOME"]) / "data" / "installs"
    (program,) = tools.glob("llama-server-router-*/own/llama-server")
    line = ["--models-preset", str(presets), "--models-max", "1", "--host", "127.0.0.1"]
    router = start(program, [*line, "--port", str(port)])
    router.wait_healthy(f"http://127.0.0.1:{port}")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", timeout=120)
    assert {"small", "small-srhpm"} <= {model.id for model in client.models.list()}
    for name in ("small-srhpm", "small"):
        said = client.chat.completions.create(
            model=name, messages=ASKED, temperature=0, max_tokens=16  # type: ignore[arg-type]
        )  # fmt: skip
        assert said.choices[0].message.content
    assert any("small-srhpm runs on SR-HPM" in line for line in router.lines)
    assert any("small is handed over" in line and "not picked" in line for line in router.lines)
    router.process.terminate()
    router.process.wait(30)
    undo()
    assert tree(presets.parent) == before
    assert not list(tools.glob("llama-server-router-*"))


def test_every_model_of_a_folder(
    tmp_path: Path,
    presets: Path,
    smollm2: Path,
    register: Callable,
    start: Callable,
    free_port: Callable,
) -> None:
    folder, port = tmp_path / "models", free_port()
    folder.mkdir()
    (folder / "tiny.gguf").symlink_to(smollm2)
    undo = register(HOST, None, "all")
    tools = Path(os.environ["SRHPM_HOME"]) / "data" / "installs"
    (program,) = tools.glob("llama-server-router-*/own/llama-server")
    url = f"http://127.0.0.1:{port}"
    line = ["--models-dir", str(folder), "-c", "1024", "-t", "2", "--host", "127.0.0.1"]
    router = start(program, [*line, "--port", str(port)])
    router.wait_healthy(url)
    httpx.post(f"{url}/models/load", json={"model": "tiny"}, timeout=60).raise_for_status()
    end = time.monotonic() + 90
    while True:
        listed = {m["id"]: m for m in httpx.get(f"{url}/models", timeout=30).json()["data"]}
        if listed["tiny"]["status"]["value"] == "loaded":
            break
        assert time.monotonic() < end, "\n".join(router.lines[-30:])
        time.sleep(0.1)
    assert listed["tiny"]["status"]["args"][0] == str(program)
    assert any("tiny runs on SR-HPM" in line for line in router.lines)
    router.process.terminate()
    router.process.wait(30)
    undo()

"""Jan's side replayed: one server per model (0.7), a router over a preset (0.8.0 to 0.8.4).

Arguments, environment and the lines it waits for: janhq/jan, ``tauri-plugin-llamacpp`` (args.rs,
commands.rs, router.rs; docs/hosts/jan.md).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from srhpm_plugin.integrations.jan import Jan

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = Jan()
READY = ("server is listening on", "server listening on", "starting the main loop",
         "http server listening")  # fmt: skip


class App:
    """What Jan does with a backend."""

    def __init__(self, data: Path, port: int) -> None:
        self.data, self.port, self.key = data, port, "8f3Kx0=="
        self.url = f"http://127.0.0.1:{port}"

    def server(self) -> Path:
        """The server of the backend that the user has picked: ours."""
        (folder,) = (self.data / "llamacpp" / "backends").glob("*/*-srhpm-*")
        server = folder / "build" / "bin" / "llama-server"
        return server if server.exists() else folder / "llama-server"

    def get(self, path: str) -> Any:
        """The answer to a request of Jan's."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.get(self.url + path, headers=headers, timeout=30).json()

    def post(self, path: str, body: object) -> Any:
        """The same, with something to say."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.post(self.url + path, headers=headers, json=body, timeout=60).json()


@pytest.fixture
def app(tmp_path: Path, smollm2: Path, stock: Callable, free_port: Callable) -> App:
    """Jan with one backend and one model."""
    data = tmp_path / "Jan" / "data"
    server = data / "llamacpp" / "backends" / "b9967" / "linux-common_cpus-x64" / "build" / "bin"
    server.mkdir(parents=True)
    stock(server / "llama-server", tmp_path / "stock.json")
    (data / "store.json").write_text('{"version": "0.8.4"}')
    model = data / "llamacpp" / "models" / "menlo" / "small"
    model.mkdir(parents=True)
    os.link(smollm2, model / "model.gguf") if _same_disk(smollm2, model) else (
        model / "model.gguf"
    ).symlink_to(smollm2)
    (model / "model.yml").write_text("model_path: llamacpp/models/menlo/small/model.gguf\n")
    return App(data, free_port())


def _same_disk(a: Path, b: Path) -> bool:
    return a.stat().st_dev == b.stat().st_dev


def test_one_server_per_model(
    app: App, register: Callable, start: Callable, chat: Callable, tree: Callable
) -> None:
    before = tree(app.data)
    undo = register(HOST, app.data, "all")
    model = app.data / "llamacpp" / "models" / "menlo" / "small" / "model.gguf"
    line = (
        f"--no-webui --jinja -m {model} -a menlo/small --port {app.port} -ngl 100 --threads 2 "
        "--flash-attn auto --cont-batching --parallel 1 -kvu --ctx-size 2048 "
        "--cache-type-k f16 --cache-type-v f16 --fit off"
    )
    child = start(app.server(), line.split(), {"LLAMA_API_KEY": app.key})
    # on the other stream Jan waits for other words
    child.wait_for(READY[:3], stream="stderr")
    assert any("menlo/small runs on SR-HPM" in line for line in child.lines)
    assert "speculation" in chat(app.url, app.key, "menlo/small")["timings"]
    child.process.terminate()
    assert child.process.wait(30) == 0
    undo()
    assert tree(app.data) == before


def test_questions_go_to_jans_own_server(
    app: App, register: Callable, start: Callable, tmp_path: Path
) -> None:
    register(HOST, app.data, "all")
    start(app.server(), ["--list-devices"])
    end = time.monotonic() + 20
    while not (told := tmp_path / "stock.json").exists() or not told.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    assert json.loads(told.read_text())["argv"][3:] == ["--list-devices"]


def write_preset(app: App) -> Path:
    """``router.preset.ini`` with the keys that Jan writes (preset.ts)."""
    model = app.data / "llamacpp" / "models" / "menlo" / "small" / "model.gguf"
    path = app.data / "llamacpp" / "router.preset.ini"
    path.write_text(
        "[*]\nfit = off\nctx-size = 2048\nflash-attn = on\nparallel = 3\nkv-unified = true\n"
        "threads = 2\nubatch-size = 256\nctx-checkpoints = 8\n\n"
        f"[menlo/small]\nmodel = {model}\nload-on-startup = false\ncache-type-k = f16\n"
    )
    return path


def test_router(
    app: App, register: Callable, start: Callable, chat: Callable, server_dir: Path
) -> None:
    register(HOST, app.data, "all")
    args = ["--models-preset", str(write_preset(app)), "--models-max", "2", "--host", "127.0.0.1",
            "--port", str(app.port), "--api-key", app.key, "--no-ui"]  # fmt: skip
    child = start(app.server(), args)
    child.wait_for(READY)
    assert [m["id"] for m in app.get("/models")["data"]] == ["menlo/small"]
    app.post("/models/load", {"model": "menlo/small"})
    end = time.monotonic() + 90
    while (status := app.get("/models")["data"][0]["status"])["value"] != "loaded":
        assert time.monotonic() < end, "\n".join(child.lines[-30:])
        time.sleep(0.1)
    assert status["args"][0] == str(app.server())  # the model came to the drop-in
    assert any("menlo/small runs on SR-HPM" in line for line in child.lines)
    assert "speculation" in chat(app.url, app.key, "menlo/small")["timings"]
    app.post("/models/unload", {"model": "menlo/small"})
    child.process.terminate()
    child.process.wait(30)


def test_a_model_of_the_router_that_is_handed_over(
    app: App, register: Callable, start: Callable
) -> None:
    """An embedding model, as Jan has one for documents: none of ours. What our router starts must
    speak as it does, so it is our server with everything of ours off, not Jan's of another tag."""
    register(HOST, app.data, "all")
    preset = write_preset(app)
    preset.write_text(preset.read_text() + "embedding = true\npooling = last\n")
    args = ["--models-preset", str(preset), "--models-max", "2", "--host", "127.0.0.1",
            "--port", str(app.port), "--api-key", app.key, "--no-ui"]  # fmt: skip
    child = start(app.server(), args)
    child.wait_for(READY)
    app.post("/models/load", {"model": "menlo/small"})
    end = time.monotonic() + 90
    while app.get("/models")["data"][0]["status"]["value"] != "loaded":
        assert time.monotonic() < end, "\n".join(child.lines[-30:])
        time.sleep(0.1)
    assert any("is handed over" in line for line in child.lines)
    told = app.post("/v1/embeddings", {"model": "menlo/small", "input": "a document"})
    assert len(told["data"][0]["embedding"]) > 100

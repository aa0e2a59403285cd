"""LM Studio's side replayed: the runtime picked, its server started with LM Studio's arguments,
polled, talked to and killed.

Arguments: as independent projects captured them from running processes (docs/hosts/lm-studio.md).
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.integrations.lmstudio import LMStudio

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for its server is a script"),
]
HOST = LMStudio()
NAME, VERSION = "llama.cpp-linux-x86_64-avx2", "2.31.2"
FILE = "community/Small-GGUF/small.gguf"


class App:
    """What LM Studio does with a runtime."""

    def __init__(self, home: Path, port: int) -> None:
        self.home, self.port, self.key = home, port, "lms-key-5up3r"
        self.url = f"http://127.0.0.1:{port}"

    def runtime(self) -> Path:
        """The program of the runtime that is selected for GGUF models."""
        path = self.home / ".internal" / "backend-preferences-v1.json"
        (entry,) = [e for e in json.loads(path.read_text()) if e["model_format"] == "gguf"]
        folder = self.home / "extensions" / "backends" / f"{entry['name']}-{entry['version']}"
        manifest = json.loads((folder / "backend-manifest.json").read_text())
        assert manifest["name"] == entry["name"]
        artifacts = json.loads((folder / "engine-protocol-server-artifacts.json").read_text())
        for file in artifacts["files"]:
            assert (folder / file["relative_path"]).is_file()
        server = manifest["engine_protocol_server"]["executable_relative_path"]
        assert server == artifacts["executable_relative_path"]
        return folder / Path(server)

    def arguments(self, *more: str) -> list[str]:
        """As captured; ``--n-gpu-layers`` and ``--threads`` vary with the user's settings."""
        line = (
            f"--host 127.0.0.1 --port {self.port} --api-key {self.key} --verbosity 3 --no-webui "
            "--jinja --ctx-size 2048 "
            "--n-gpu-layers 0 --n-cpu-moe 0 --main-gpu 0 --split-mode layer --ctx-checkpoints 32 "
            "--batch-size 512 --ubatch-size 512 --threads 2 --parallel 2 --cache-type-k f16 "
            "--cache-type-v f16 --flash-attn on --kv-offload --kv-unified --load-mode mmap+mlock"
        )
        return ["--model", str(self.home / "models" / FILE), *line.split(), *more]


@pytest.fixture
def app(tmp_path: Path, smollm2: Path, stock: Callable, free_port: Callable) -> App:
    """LM Studio with one runtime, selected, and one model."""
    home = tmp_path / "a user" / ".lmstudio"
    pack = home / "extensions" / "backends" / f"{NAME}-{VERSION}"
    pack.mkdir(parents=True)
    (home / ".internal").mkdir()
    (home / "models" / FILE).parent.mkdir(parents=True)
    (home / "models" / FILE).symlink_to(smollm2)  # `lms import -l` does so
    stock(pack / "llama-server", tmp_path / "stock.json")
    server = {"runtime_kind": "llama-server", "executable_relative_path": "llama-server"}
    manifest = {
        "name": NAME, "version": VERSION, "engine": "llama.cpp",
        "supported_model_formats": ["gguf"], "engine_protocol_server": server,
    }  # fmt: skip
    files = [{"relative_path": "llama-server", "executable": True}]
    (pack / "backend-manifest.json").write_text(json.dumps(manifest))
    (pack / "engine-protocol-server-artifacts.json").write_text(
        json.dumps({"schema_version": 1, **server, "files": files})
    )
    entry = {"model_format": "gguf", "name": NAME, "version": VERSION}
    (home / ".internal" / "backend-preferences-v1.json").write_text(json.dumps([entry]))
    return App(home, free_port())


def test_install_use_uninstall(
    app: App, register: Callable, start: Callable, chat: Callable, tree: Callable, server_dir: Path
) -> None:
    before = tree(app.home)
    undo = register(HOST, app.home, "all")
    assert "srhpm" in str(app.runtime())
    child = start(app.runtime(), app.arguments())
    child.wait_healthy(app.url)
    assert child.program() in (None, (server_dir / "llama-server").resolve()), child.lines
    answer = chat(app.url, app.key)
    assert "speculation" in answer["timings"]  # ours says how each answer was drafted
    assert answer["text"].strip()
    child.stop()
    undo()
    assert tree(app.home) == before
    assert app.runtime().parent.name == f"{NAME}-{VERSION}"


def test_its_own_speculation_is_kept(
    app: App, register: Callable, start: Callable, chat: Callable, smollm2: Path
) -> None:
    register(HOST, app.home, "all")
    more = ("--spec-type", "draft-simple", "--spec-draft-n-max", "4", "--spec-draft-n-min", "0",
            "--spec-draft-p-min", "0.75", "--spec-draft-model", str(smollm2))  # fmt: skip
    child = start(app.runtime(), app.arguments(*more))
    child.wait_healthy(app.url)
    said = child.wait_for(["speculation on"])
    assert "draft-simple" in said
    assert "up to 4" in said
    assert chat(app.url, app.key)["timings"]["draft_n"] > 0


@pytest.mark.parametrize("broken", ["model", "python", "note", "server"])
def test_hands_over_with_untouched_arguments(
    app: App, register: Callable, start: Callable, tmp_path: Path, built: Path, broken: str
) -> None:
    """Whatever is wrong with us, LM Studio's own server runs as if we were not there."""
    register(HOST, app.home, "all")
    place = app.runtime()
    note = place.with_name(place.name + ".srhpm")
    model = app.home / "models" / FILE
    if broken == "model":
        model.unlink()
        model.write_bytes(b"GGUF of an architecture of tomorrow")
    elif broken == "python":
        note.write_text(note.read_text().replace(f"python={sys.executable}", "python=/no/python"))
    elif broken == "note":
        note.write_text(note.read_text().replace("version=1", "version=7"))
    else:
        shutil.rmtree(built / "data" / "native")
    arguments = app.arguments("--chat-template-file", "/x y/template.jinja")
    child = start(place, arguments, {"KVMEM_X": "kept", "LD_LIBRARY_PATH": "/vendor"})
    child.wait_healthy(app.url)
    told: dict[str, Any] = json.loads((tmp_path / "stock.json").read_text())
    assert told["argv"][3:] == arguments
    assert told["env"]["KVMEM_X"] == "kept"
    assert told["env"]["LD_LIBRARY_PATH"] == "/vendor"
    assert not any("error:" in line for line in child.lines if "srhpm" in line)


def test_two_runtimes_side_by_side(app: App, register: Callable, start: Callable) -> None:
    """In mode select the stock runtime stays selected and does not know of us."""
    register(HOST, app.home, "select")
    assert app.runtime().parent.name == f"{NAME}-{VERSION}"
    child = start(app.runtime(), app.arguments())
    child.wait_healthy(app.url)
    assert not any("srhpm" in line for line in child.lines)


def test_a_failed_load_is_told_in_its_form(
    app: App, register: Callable, start: Callable, tmp_path: Path
) -> None:
    """Our server is started and fails: the user is told so where LM Studio shows such things."""
    register(HOST, app.home, "all")
    adapter = tmp_path / "adapter.gguf"  # opened after the model, and of no use
    adapter.write_bytes(b"GGUF" + bytes(60))
    child = start(app.runtime(), app.arguments("--lora", str(adapter)))
    assert child.ended() != 0
    (line,) = [line for line in child.lines if line.startswith("LMSTUDIO_STARTUP_ERROR:")]
    assert "Load it again" in json.loads(line.partition(":")[2])["message"]

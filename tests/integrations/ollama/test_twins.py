"""Second names: which models get one, how it is told from its base, and how it is made."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ollama_store import Shelf

from srhpm_plugin.host import Tools
from srhpm_plugin.install.operations import Call
from srhpm_plugin.integrations.ollama import Ollama, twins
from srhpm_plugin.integrations.ollama.names import Name, marker, marks_twin
from srhpm_plugin.integrations.ollama.store import Store
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.plan import HostRequest, Predicted
from srhpm_plugin.planner.make import make_plan

HOST = Ollama()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return probe(None)


def verdicts(shelf: Shelf, machine: Machine) -> dict[str, str]:
    """Name of the twin, or why there is none, by model."""
    found = twins.judge(Store(shelf.root), machine)
    return {str(v.entry.name): str(v.twin or v.why) for v in found}


# What Ollama passes on by itself (server/sched.go, llm/llama_server.go) and what people write.
OLLAMAS = (256, 512, 1024, 2048)
PEOPLES = (1, 2, 8, 16, 32, 64, 100, 128, 500, 1000, 1500, 4096, 8192)


@pytest.mark.parametrize("batch", [*OLLAMAS, *PEOPLES])
def test_no_usual_batch_marks_a_twin(batch: int) -> None:
    assert not marks_twin(batch)


@pytest.mark.parametrize("params", [{}, *({"num_batch": n} for n in (*OLLAMAS, *PEOPLES))])
def test_a_marker_marks_and_is_no_larger_than_what_was_asked_for(params: dict[str, int]) -> None:
    batch = marker(params)
    assert marks_twin(batch)
    assert batch < max(params.get("num_batch", 512), 512)


@pytest.mark.parametrize("value", ["512", 1e9, True, None, [512], -5, 1 << 70])
def test_a_batch_that_is_none(value: object) -> None:
    assert marks_twin(marker({"num_batch": value}))
    assert marker({"num_batch": value}) < 1 << 16


def test_a_twin_of_the_longest_name() -> None:
    assert str(Name("registry.ollama.ai", "library", "m", "t" * 74).twin()) == f"m:{'t' * 74}-srhpm"
    assert Name("registry.ollama.ai", "library", "m", "t" * 75).twin() is None


def test_who_gets_one(shelf: Shelf, smollm2: Path, machine: Machine) -> None:
    shelf.add("smol:latest", smollm2)
    shelf.add("smol:same", smollm2)  # nothing else than the one above under another name
    shelf.add("smol:long", smollm2, {"num_ctx": 8192})
    shelf.add("mine:a", smollm2, {"num_ctx": 4096})
    shelf.add("mine:a-srhpm", smollm2, {"temperature": 0.2})  # not one of ours
    shelf.add("has:one", smollm2, {"num_ctx": 2048})
    shelf.add("has:one-srhpm", smollm2, {"num_ctx": 2048, "num_batch": 511})
    shelf.add("cloud:latest", smollm2, config={"remote_host": "https://ollama.com"})
    shelf.write("bad:latest", b"{")
    shelf.add("text:latest", b"no model")
    found = verdicts(shelf, machine)
    assert found["smol:latest"] == "smol:latest-srhpm"
    assert "same as smol:latest" in found["smol:same"]
    assert found["smol:long"] == "smol:long-srhpm"
    assert "yours" in found["mine:a"]
    assert found["has:one"] == "has:one-srhpm"
    assert "another machine" in found["cloud:latest"]
    assert "manifest" in found["bad:latest"]
    assert "has:one-srhpm" not in found
    assert not found["text:latest"].endswith("srhpm")


def test_a_plan_without_gain_gets_none(smollm2: Path, machine: Machine) -> None:
    plan = make_plan(HostRequest(smollm2), machine=machine, known=(), command=False)
    assert twins.no_gain(replace(plan, predicted=Predicted())) is None
    assert twins.no_gain(replace(plan, predicted=Predicted(20.0, 10.0))) is None
    assert "9.0" in (twins.no_gain(replace(plan, predicted=Predicted(9.0, 10.0))) or "")
    stock = replace(plan, kind="stock", reasons=("stock: it embeds",))
    assert twins.no_gain(stock) == "it embeds"


class Api:
    """Ollama's API as far as an installation uses it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        calls = self.calls

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *args: object) -> None:
                pass

            def _answer(self) -> None:
                raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                calls.append((self.command, self.path, json.loads(raw) if raw else None))
                body = json.dumps({"version": "0.33.0", "status": "success"}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = _answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    running = Api()
    monkeypatch.setenv("OLLAMA_HOST", running.address)
    yield running
    running.server.shutdown()
    running.server.server_close()


def test_made_and_removed_through_the_api(
    tmp_path: Path,
    copy: Callable[..., Path],
    shelf: Shelf,
    smollm2: Path,
    api: Api,
    install: Callable[..., Any],
    tree: Callable[[Path], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLLAMA_MODELS", str(shelf.root))
    shelf.add("smol:135m", smollm2, {"num_batch": 2048})
    # The program asks for its version at an address where nobody is, whatever the user's says.
    (found,) = HOST.find(copy(tmp_path / "tree"))
    before = tree(tmp_path / "tree")
    installed = install(HOST, found, "select")
    body = {
        "model": "smol:135m-srhpm",
        "from": "smol:135m",
        "parameters": {"num_batch": 2047},
        "stream": False,
    }
    assert api.calls == [("GET", "/api/version", None), ("POST", "/api/create", body)]
    assert any("smol:135m-srhpm" in note for note in installed.steps.notes)
    assert installed.undo() == []
    assert api.calls[2:] == [("DELETE", "/api/delete", {"model": "smol:135m-srhpm"})]
    assert tree(tmp_path / "tree") == before


def test_ollama_that_does_not_run_is_said_with_what_to_type(
    tmp_path: Path, copy: Callable[..., Path], tools: Tools
) -> None:
    (found,) = HOST.find(copy(tmp_path / "tree"))
    steps = HOST.steps(found, tools, "select")
    assert not [o for o in steps.operations if isinstance(o, Call)]
    (note,) = [n for n in steps.notes if "no Ollama answers" in n]
    assert "ollama serve" in note
    assert "srhpm-plugin install --host ollama --mode select" in note


def test_an_ollama_on_another_machine_is_asked_for_nothing(
    tmp_path: Path, copy: Callable[..., Path], tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "http://192.0.2.7:11434")
    (found,) = HOST.find(copy(tmp_path / "tree"))
    assert "api" not in found.facts
    assert not [o for o in HOST.steps(found, tools, "select").operations if isinstance(o, Call)]

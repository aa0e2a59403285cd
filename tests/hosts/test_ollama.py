"""Ollama's contract with ``llama-server`` replayed: installed, found, started, read, asked, killed.

The real Ollama was tried by hand, see docs/hosts/ollama.md; what it does is in the emulator.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ollama_copy import Copy, blob, records, runs_ours, words
from ollama_emulator import BUFFER, status_error

from srhpm_plugin.gguf import read_model
from srhpm_plugin.gguf.reading import ModelInfo
from srhpm_plugin.install.state import installs_dir
from srhpm_plugin.integrations.ollama import Ollama as Host

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-in for its server is a script"),
]
HOST = Host()


def test_the_whole_way(
    ollama: Copy, smollm2: Path, server_dir: Path, register: Callable[..., Any],
    tree: Callable[[Path], Any],
) -> None:  # fmt: skip
    model = blob(ollama, "smol:135m", smollm2)
    before, store = tree(ollama.root), tree(ollama.shelf.root)
    uninstall = register(HOST, ollama.root, "all")

    # Discovery: no model, so its own server runs with what it was given and nothing else.
    assert ollama.ollama.discover() == ["CUDA0"]
    argv, env = ollama.got()
    assert argv == ["--list-devices", "--offline", "--verbose"]
    assert env["GGML_BACKEND_PATH"].endswith("libggml-cuda.so")
    assert not [name for name in env if name.startswith("SRHPM_HOST_")]
    ollama.forget()

    runner = ollama.ollama.start(model, num_gpu=0)
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    assert not ollama.own_server_ran()
    text, last = words(runner)
    assert "four, five, six" in text
    assert last["stop_type"] == "limit"
    assert {"cache_n", "prompt_n", "prompt_ms", "predicted_n", "predicted_ms"} <= set(
        last["timings"]
    )
    again, _ = words(runner)
    assert again == text

    log = runner.log
    assert log.errors == []
    kinds = {kind for _, _, kind in log.buffers}
    assert {"model", "KV", "compute"} <= kinds
    assert log.on_gpu() == 0
    weights = sum(mib for (_, _, kind), mib in log.buffers.items() if kind == "model")
    assert weights > 0.9 * read_model(smollm2).nbytes / (1 << 20)

    # What the process is, Ollama kills directly: nothing may be left.
    children = Path(f"/proc/{runner.process.pid}/task/{runner.process.pid}/children").read_text()
    assert children.strip() == ""
    runner.kill()
    assert uninstall() == ()
    assert tree(ollama.root) == before
    assert tree(ollama.shelf.root) == store
    assert not list(installs_dir().iterdir()) or all(
        not p.is_dir() for p in installs_dir().iterdir()
    )


def test_every_request_that_ollama_makes(
    ollama: Copy, smollm2: Path, server_dir: Path, register: Callable[..., Any]
) -> None:
    register(HOST, ollama.root, "all")
    runner = ollama.ollama.start(blob(ollama, "smol:135m", smollm2), num_gpu=0, jinja=True)
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    tokens = runner.post(
        "/tokenize", {"content": "Hello world", "add_special": True, "parse_special": True}
    )["tokens"]
    assert runner.post("/detokenize", {"tokens": tokens})["content"] == "Hello world"
    messages = [{"role": "user", "content": "The capital of France is"}]
    prompt = runner.post("/apply-template", {"messages": messages})["prompt"]
    assert "The capital of France is" in prompt

    # As Ollama renders it; the template's own system prompt makes this small model babble.
    prompt = prompt[prompt.index("<|im_start|>user") :]
    text, _ = words(runner, prompt, 16)
    assert "Paris" in text
    # A prompt as tokens, and one with an answer bound to a schema.
    by_tokens = {"prompt": tokens, "stream": True, "n_predict": 4, "temperature": 0}
    assert list(runner.events("/completion", by_tokens))[-1]["stop"]
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
    }
    bound = {"prompt": prompt, "stream": True, "n_predict": 40, "temperature": 0}
    events = runner.events("/completion", {**bound, "json_schema": schema})
    assert set(json.loads("".join(e["content"] for e in events))) == {"city"}
    events = runner.events("/completion", {**bound, "grammar": 'root ::= "yes" | "no"'})
    assert "".join(e["content"] for e in events) in ("yes", "no")
    probabilities = list(runner.events("/completion", {**bound, "n_predict": 3, "n_probs": 2}))
    assert any(e.get("completion_probabilities") for e in probabilities)

    chat = {
        "messages": messages, "stream": True, "cache_prompt": True, "n_predict": 16, "n_keep": 4,
        "temperature": 0, "top_k": 40, "top_p": 0.9, "seed": 1,
        "tools": [{
            "type": "function",
            "function": {
                "name": "weather", "description": "of a city",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
            },
        }],
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    events = list(runner.events("/v1/chat/completions", chat))
    assert events[-1]["timings"]["predicted_n"] > 0
    assert any(c.get("finish_reason") for e in events for c in e["choices"])
    assert runner.log.errors == []


def test_a_client_that_hangs_up_frees_the_slot(
    ollama: Copy, smollm2: Path, register: Callable[..., Any]
) -> None:
    register(HOST, ollama.root, "all")
    runner = ollama.ollama.start(blob(ollama, "smol:135m", smollm2), num_gpu=0)
    runner.wait_until_running()
    body = {
        "prompt": "red, green, blue, " * 20,
        "stream": True,
        "n_predict": 1500,
        "temperature": 0,
        "ignore_eos": True,
    }
    with runner.http.stream("POST", "/completion", json=body) as answer:
        lines = filter(None, answer.iter_lines())
        events = [
            json.loads(line.removeprefix("data: "))
            for line, _ in zip(lines, range(24), strict=False)
        ]
    # Ollama loses the model when events wait at that moment: those of a pass come as one
    assert max(len(event["tokens"]) for event in events) > 1
    text, _ = words(runner, n=8)  # one slot: it would wait for all of the other's tokens
    assert text.strip()
    assert runner.log.errors == []


def test_twins(ollama: Copy, smollm2: Path, server_dir: Path, register: Callable[..., Any]) -> None:
    ollama.shelf.add("smol:135m-srhpm", smollm2, {"num_batch": 511})
    model = blob(ollama, "smol:135m", smollm2)
    register(HOST, ollama.root, "select")
    base = ollama.ollama.start(model, num_gpu=0)
    base.wait_until_running()
    assert not runs_ours(base, server_dir)
    argv, env = ollama.got()
    assert ["--model", str(model)] == argv[:2]
    assert argv[-3:] == ["--context-shift", "--keep", "4"]
    assert env["LLAMA_MEDIA_MARKER"].startswith("<__ollama_media_")
    base.kill()
    twin = ollama.ollama.start(model, num_gpu=0, num_batch=511)
    twin.wait_until_running()
    assert runs_ours(twin, server_dir)
    command = Path(f"/proc/{twin.process.pid}/cmdline").read_bytes().split(b"\0")
    assert b"511" not in command  # the mark is not the batch
    (record,) = [r for r in records() if r["kind"] != "stock"]
    assert record["model"] == "smol:135m-srhpm"


def test_what_the_user_set_wins(
    ollama: Copy, smollm2: Path, server_dir: Path, register: Callable[..., Any]
) -> None:
    register(HOST, ollama.root, "all")
    runner = ollama.ollama.start(
        blob(ollama, "smol:135m", smollm2), num_gpu=0, num_thread=1, num_ctx=1024, num_parallel=2,
        kv_cache_type="q8_0", num_batch=256,
    )  # fmt: skip
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    argv = Path(f"/proc/{runner.process.pid}/cmdline").read_bytes().decode().split("\0")

    def last(*names: str) -> str:
        return next(argv[i + 1] for i in reversed(range(len(argv))) if argv[i] in names)

    assert last("-c", "--ctx-size") == "2048"
    assert last("-np", "--parallel") == "2"
    assert last("-t", "--threads") == "1"
    assert last("-ctk", "--cache-type-k") == "q8_0"
    assert last("-ub", "--ubatch-size") == "256"
    assert last("-ngl", "--gpu-layers") == "0"


def test_a_draft_of_the_store_drafts(
    ollama: Copy, smollm2: Path, server_dir: Path, register: Callable[..., Any]
) -> None:
    """``DRAFT`` with a model of the common kind: Ollama can only say draft-mtp."""
    register(HOST, ollama.root, "all")
    model = blob(ollama, "smol:135m", smollm2)
    draft = ["--spec-type", "draft-mtp", "--spec-draft-n-max", "4"]
    draft += ["--spec-draft-backend-sampling", "--spec-draft-model", str(model)]
    runner = ollama.ollama.start(model, num_gpu=0, draft=draft)
    runner.wait_until_running()
    assert runs_ours(runner, server_dir)
    _, last = words(runner)
    assert last["timings"]["draft_n"] > 0
    assert last["timings"]["draft_n_accepted"] > 0
    assert runner.log.errors == []


def test_what_ours_cannot_load_goes_to_ollamas(
    ollama: Copy, smollm2: Path, tmp_path: Path, register: Callable[..., Any],
    write_former: Callable[[Path, Path], ModelInfo],
) -> None:  # fmt: skip
    register(HOST, ollama.root, "all")
    former = tmp_path / "former.gguf"
    write_former(smollm2, former)
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(1000))
    starts: list[tuple[Path, dict[str, Any]]] = [
        (blob(ollama, "former:latest", former), {}),
        (blob(ollama, "junk:latest", junk), {}),
        (blob(ollama, "embed:latest", smollm2), {"embedding": True}),
        (blob(ollama, "newer:latest", smollm2), {"draft": ["--option-of-tomorrow"]}),
    ]
    for model, options in starts:
        runner = ollama.ollama.start(model, num_gpu=0, **options)
        runner.wait_until_running()
        argv, _ = ollama.got()
        assert argv == [str(a) for a in runner.process.args[1:]]  # type: ignore[index]
        ollama.forget()
        runner.kill()
    reasons = [r["reason"] for r in records()]
    assert any("gptoss" in reason for reason in reasons)
    assert all(r["kind"] == "stock" for r in records())
    names = [r["model"] for r in records()]
    assert names[:2] == ["former:latest", "junk:latest"]
    assert set(names[2:]) <= {"embed:latest", "newer:latest"}  # two names of one file


@pytest.fixture
def write_former() -> Callable[[Path, Path], None]:
    """Writes a model under the name that Ollama's former engine gave an architecture."""

    def write(source: Path, place: Path) -> None:
        content = source.read_bytes()
        key = b"general.architecture\x08\0\0\0\x05\0\0\0\0\0\0\0llama"
        assert key in content
        new = b"general.architecture\x08\0\0\0\x06\0\0\0\0\0\0\0gptoss"
        # One byte more in the header: taken from the name, so that all offsets stay.
        name = b"general.name\x08\0\0\0"
        at = content.index(name) + len(name)
        length = int.from_bytes(content[at : at + 8], "little")
        shorter = (length - 1).to_bytes(8, "little") + content[at + 8 : at + 7 + length]
        content = content[:at] + shorter + content[at + 8 + length :]
        place.write_bytes(content.replace(key, new, 1))

    return write


def test_the_emulator_reads_logs_as_ollama_does() -> None:
    """Lines of a real log (0.33.0), and ones that must be noticed."""
    real = "load_tensors:    CPU_SRHPM model buffer size =    91.97 MiB\n"
    assert BUFFER.findall(real) == [("load_tensors", "CPU_SRHPM", "model", "91.97")]
    assert status_error("srhpm: speculation on: ngram-simple") is None
    assert status_error("x error: y")
    assert status_error("ggml: Failed to allocate buffer")

"""What is tried on a real Ollama (``tests/ollama_real.py``): each function one row of the page's
table, in this order, on what the rows before it left. Raises where anything is otherwise."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
from adapters import write_adapter
from crash import state
from ollama_real import Real, until
from openai import OpenAI
from pictures import png, write_projector

TOOLS = """{{- if .Tools }}<|im_start|>system
You have tools: {{ .Tools }} Call one by {"name": ..., "arguments": ...}.<|im_end|>
{{ end }}{{- range .Messages }}<|im_start|>{{ .Role }}
{{ .Content }}{{ range .ToolCalls }}{"name": "{{ .Function.Name }}",
"arguments": {{ .Function.Arguments }}}{{ end }}<|im_end|>
{{ end }}<|im_start|>assistant
"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 15}},
    "required": ["city"],
}
FRANCE = [{"role": "user", "content": "The capital of France is"}]
STORY = {"role": "user", "content": "Tell a very long story about a fox and a king."}


@dataclass
class Files:
    """The models, and what one row leaves to another."""

    model: Path
    drafter: Path
    embedding: Path | None
    before: dict[str, Any] | None = None


def same(seen: object, expected: object) -> None:
    if seen != expected:
        raise AssertionError(f"{seen!r} instead of {expected!r}")


def holds(what: object, said: object = "") -> None:
    if not what:
        raise AssertionError(str(said))


def without_us(it: Real, files: Files) -> str:
    """`ollama create` from GGUF, `list`, `run --verbose`, `ps`, `stop`, `rm`, without us"""
    it.create("smol", f"FROM {files.drafter}\n")
    it.create("wide:2b", f"FROM {files.model}\n")
    it.create("tools", f'FROM smol\nTEMPLATE """{TOOLS}"""\nPARAMETER num_ctx 3072\n')
    if files.embedding:
        it.create("embed", f"FROM {files.embedding}\n")
    files.before = _plain_use(it, "ollama") | {"refusals": _refusals(it)}
    files.before["tree"] = it.seen()
    return f"Ollama's own server; {files.before['speed']}"


def _plain_use(it: Real, server: str) -> dict[str, Any]:
    holds("wide:2b" in it.ollama("list"))
    said = it.ollama("run", "--verbose", "wide:2b", "Count from one to ten in words.")
    (speed,) = [line for line in said.splitlines() if line.startswith("eval rate")]
    same(it.ran(), server)
    loaded = it.ollama("ps")
    holds("wide:2b" in loaded and "100% CPU" in loaded, loaded)
    it.unload("wide:2b")
    it.create("gone", "FROM smol\n")
    it.ollama("rm", "gone")
    holds("gone" not in it.ollama("list"))
    return {"speed": " ".join(speed.split())}


def _refusals(it: Real) -> list[tuple[int, Any]]:
    asked = [
        it.post("/api/chat", model="smol", messages=FRANCE, tools=[WEATHER], stream=False),
        it.post("/api/embed", model="smol", input="some words"),
        it.post("/api/generate", model="nothing", prompt="x"),
    ]
    return [(r.status_code, r.json()) for r in asked]


def mode_all(it: Real, files: Files) -> str:
    """`install --mode all`, then the same; wide:2b"""
    it.srhpm("install", "--host", "ollama", "--path", str(it.root))
    seen = _plain_use(it, "ours")
    launch = it.launches()[0]
    same((launch["model"], launch["kind"], launch["state"]), ("wide:2b", "srhpm", "ended"))
    holds(launch["drafter"].startswith("draft-simple smol"), launch["drafter"])
    holds(launch["tokens"] > 0 and launch["acceptance"] > 0, launch)
    return (
        f"our server, {launch['drafter']}, acceptance {launch['acceptance']:.2f}; {seen['speed']}"
    )


def apis(it: Real, files: Files) -> str:
    """`/api/generate`, `/api/chat`, `/v1/chat/completions`, `/v1/responses`, streamed and whole"""
    options = {"temperature": 0, "num_predict": 12}
    said = {}
    for stream in (False, True):
        for route, asked in (
            ("/api/generate", {"prompt": "The capital of France is"}),
            ("/api/chat", {"messages": FRANCE}),
        ):
            text = it.post(route, model="wide:2b", stream=stream, options=options, **asked).text
            lines = [json.loads(line) for line in text.splitlines()]
            holds(lines[-1]["done"] and (len(lines) > 1) == stream, text)
            said[route, stream] = "".join(
                line.get("response") or line.get("message", {}).get("content", "") for line in lines
            )
    client = OpenAI(base_url=f"{it.url}/v1", api_key="ollama")
    chat = {"model": "wide:2b", "messages": FRANCE, "temperature": 0, "max_tokens": 12}
    said["chat", False] = client.chat.completions.create(**chat).choices[0].message.content
    chunks = client.chat.completions.create(**chat, stream=True)
    said["chat", True] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    ask = {"model": "wide:2b", "input": FRANCE[0]["content"], "max_output_tokens": 12}
    said["responses", False] = client.responses.create(**ask, temperature=0).output_text
    events = client.responses.create(**ask, temperature=0, stream=True)
    said["responses", True] = "".join(
        e.delta for e in events if e.type == "response.output_text.delta"
    )
    for route in {route for route, _ in said}:
        same(said[route, True], said[route, False])
    same(len({text for (route, _), text in said.items() if route != "/api/generate"}), 1)
    same(it.ran(), "ours")
    return "streamed and whole alike, chats alike over the three APIs"


def schema(it: Real, files: Files) -> str:
    """JSON schema, `format` and `response_format`"""
    asked = {"model": "wide:2b", "messages": [{"role": "user", "content": "A city as JSON"}]}
    options = {"temperature": 0, "num_predict": 60}
    answer = it.post("/api/chat", **asked, format=CITY, stream=False, options=options).json()
    city = json.loads(answer["message"]["content"])["city"]
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    client = OpenAI(base_url=f"{it.url}/v1", api_key="ollama")
    of_openai = client.chat.completions.create(
        **asked, response_format=form, temperature=0, max_tokens=60
    )
    same(json.loads(of_openai.choices[0].message.content)["city"], city)
    return "answers parse and fit"


def tools(it: Real, files: Files) -> str:
    """tools with a template that has them"""
    asked = {"model": "tools", "messages": [{"role": "user", "content": "Weather in Rome?"}]}
    options = {"temperature": 0, "num_predict": 24}
    counts = []
    for given in ([], [WEATHER]):
        answer = it.post("/api/chat", **asked, tools=given, stream=False, options=options)
        same(answer.status_code, 200)
        counts.append(answer.json()["prompt_eval_count"])
    holds(counts[1] > counts[0] + 20, counts)
    same(it.ran(), "ours")
    return "request taken, the prompt rendered with them"


def refusals(it: Real, files: Files) -> str:
    """tools without a template for them, `/api/embed` with a model that generates, no such model"""
    holds(files.before)
    same(_refusals(it), files.before["refusals"])
    return "the same refusals as without us, word for word"


def embeddings(it: Real, files: Files) -> str:
    """embeddings with an embedding model, `/api/embed` and `/v1/embeddings`"""
    if files.embedding is None:
        return "not tried: no --embedding"
    vector = it.post("/api/embed", model="embed", input="some words").json()["embeddings"][0]
    client = OpenAI(base_url=f"{it.url}/v1", api_key="ollama")
    of_openai = client.embeddings.create(model="embed", input="some words").data[0].embedding
    same(len(of_openai), len(vector))
    launch = it.launches()[0]
    same(launch["model"], "embed:latest")
    same(launch["kind"], "stock")
    return f"handed over ({launch['reason'][:60]}...); {len(vector)} numbers"


def keep_alive(it: Real, files: Files) -> str:
    """`keep_alive` 2 s"""
    it.answer("smol", 1)
    it.unload("smol")
    same(it.post("/api/generate", model="smol", prompt="x", keep_alive="2s").status_code, 200)
    holds(it.servers())
    took = until(lambda: not it.servers(), 20)
    return f"unloaded, no process left after {took:.1f} s"


def num_ctx(it: Real, files: Files) -> str:
    """`num_ctx` 2048"""
    it.answer("wide:2b")
    before = it.option("-c")
    it.answer("wide:2b", num_ctx=2048)
    same(it.option("-c"), "2048")
    same(it.ran(), "ours")
    return f"loaded again with `-c 2048` instead of {before}"


def hang_up(it: Real, files: Files) -> str:
    """clients that hang up in a long story, 12 of them at different places"""
    slowest = 0.0
    it.answer("wide:2b", 1)
    for lines in range(3, 15):
        asked = {"model": "wide:2b", "messages": [STORY], "options": {"num_predict": 4000}}
        with httpx.stream("POST", f"{it.url}/api/chat", json=asked, timeout=60) as stream:
            list(islice(stream.iter_lines(), lines))
        begun = time.monotonic()
        it.answer("wide:2b", 1, seconds=30)
        slowest = max(slowest, time.monotonic() - begun)
    return f"the next request is answered after at most {slowest:.1f} s"


def stop(it: Real, files: Files) -> str:
    """`ollama stop`"""
    it.answer("wide:2b")
    it.unload("wide:2b")
    return "no process left"


def killed(it: Real, files: Files) -> str:
    """our server killed with SIGKILL"""
    it.answer("wide:2b")
    (pid,) = it.servers()
    os.kill(pid, signal.SIGKILL)
    until(lambda: it.post("/api/generate", model="wide:2b", prompt="x", stream=False,
                          options={"num_predict": 2}).status_code == 200, 60)  # fmt: skip
    same(it.ran(), "ours")
    return "asked again, it is loaded and answers"


def lora(it: Real, files: Files) -> str:
    """`ADAPTER` with a LoRA (tiny, of random numbers)"""
    adapter = write_adapter(it.folder / "adapter.gguf", files.drafter)
    it.create("tuned", f"FROM smol\nADAPTER {adapter}\n")
    plain, tuned = (
        it.answer(name, 48, prompt="A story:")["response"] for name in ("smol", "tuned")
    )
    holds(plain != tuned, plain)
    same((it.ran(), Path(it.option("--lora")).parent.name), ("ours", "blobs"))
    return "our server with `--lora`, the answer is another one"


def projector(it: Real, files: Files) -> str:
    """`FROM` a model and a projector (tiny, of random numbers)"""
    file = write_projector(it.folder / "projector.gguf")
    it.create("sees", f"FROM {files.drafter}\nFROM {file}\n")
    said = []
    for shade in (lambda x, y: 255, lambda x, y: 255 * ((x // 4 + y // 4) % 2)):
        answer = it.post(
            "/api/chat", model="sees", stream=False, options={"temperature": 0, "num_predict": 16},
            messages=[{"role": "user", "content": "It shows", "images": [png(shade)]}],
        )  # fmt: skip
        same(answer.status_code, 200)
        said.append(answer.json()["message"]["content"])
    holds(said[0] != said[1], said)
    same((it.ran(), Path(it.option("--mmproj")).parent.name), ("ours", "blobs"))
    return "two pictures, two answers of our server"


def draft(it: Real, files: Files) -> str:
    """`DRAFT` with SmolLM2 (Ollama passes `--spec-type draft-mtp`)"""
    it.create("drafted", f"FROM wide:2b\nDRAFT {files.drafter}\n")
    it.answer("drafted", 48)
    same(it.ran(), "ours")
    launch = it.launches()[0]
    holds(launch["drafter"].startswith("draft-simple"), launch)
    it.unload("drafted")
    it.ollama("rm", "drafted")
    return f"drafts as {launch['drafter'].split()[0]}"


def parallel(it: Real, files: Files) -> str:
    """Ollama restarted while installed with `OLLAMA_NUM_PARALLEL=2`, two requests at once"""
    it.restart(OLLAMA_NUM_PARALLEL="2")
    answers: list[dict[str, Any]] = []
    threads = [
        threading.Thread(target=lambda: answers.append(it.answer("wide:2b", 32))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    same(len({a["response"] for a in answers}), 1)
    same((len(answers), it.ran(), it.option("-np")), (2, "ours", "2"))
    return "both answered by our server with two slots, alike"


def go_template(it: Real, files: Files) -> str:
    """Ollama restarted while installed, `OLLAMA_GO_TEMPLATE=0`"""
    it.restart(OLLAMA_GO_TEMPLATE="0")
    it.answer("wide:2b")
    same(it.ran(), "ours")
    it.restart()
    return "models load"


def clients(it: Real, files: Files) -> str:
    """Python `ollama`, and `llm` with `llm-ollama`, default settings"""
    import ollama

    client = ollama.Client(it.url)
    whole = client.chat(model="wide:2b", messages=FRANCE).message.content
    asked = client.generate("wide:2b", "x", stream=True, options={"num_predict": 40})
    streamed = [c.response for c in asked]
    holds(whole and len(streamed) > 1)
    holds("wide:2b" in [m.model for m in client.list().models])
    argv = [sys.executable, "-m", "llm", "-m", "ollama/wide:2b", "-o", "num_predict", "40"]
    said = it.run([*argv, "The capital of France is"])
    holds(said.strip())
    return "answers, streams and model lists"


def select(it: Real, files: Files) -> str:
    """`--mode select`"""
    names = it.models()
    it.srhpm("install", "--host", "ollama", "--path", str(it.root), "--mode", "select")
    twins = [name for name in it.models() if name not in names]
    it.unload("wide:2b")  # what is loaded stays as it is
    holds("wide:2b-srhpm" in twins and not any(t.startswith("embed") for t in twins), twins)
    ran = []
    for name, options in (
        ("wide:2b", {}), ("wide:2b-srhpm", {}), ("wide:2b-srhpm", {"num_ctx": 2048}),
        ("wide:2b-srhpm", {"num_batch": 256}),
    ):  # fmt: skip
        it.answer(name, 4, **options)
        ran.append(it.ran())
    same(ran, ["ollama", "ours", "ours", "ollama"])
    return f"{len(twins)} twins in /api/tags, none of the embedding model; base on Ollama's own " \
        "server, twin on ours, also with num_ctx; with num_batch 256 on Ollama's own"  # fmt: skip


def uninstall(it: Real, files: Files) -> str:
    """`uninstall` in the middle of an answer"""
    holds(files.before)
    for name in ("tuned", "sees"):
        it.ollama("rm", name)
    asked = {"model": "wide:2b-srhpm", "messages": [STORY]}
    asked["options"] = {"num_predict": 120, "temperature": 0}
    last = {}
    with httpx.stream("POST", f"{it.url}/api/chat", json=asked, timeout=300) as stream:
        for number, line in enumerate(stream.iter_lines()):
            if number == 10:
                it.srhpm("uninstall", "--host", "ollama", "--path", str(it.root))
            last = json.loads(line)
    holds(last["done"] and last["eval_count"] == 120, last)
    holds(not any("srhpm" in name for name in it.models()), it.models())
    now = it.seen()
    then = files.before["tree"]
    changed = [(k, then.get(k), now.get(k)) for k in {*now, *then} if now.get(k) != then.get(k)]
    same(changed, [])
    return f"the answer came whole; twins gone; {len(now)} files and folders as before"


def wiped(it: Real, files: Files) -> str:
    """`lib/ollama` wiped and unpacked again while installed, `install` heals, `uninstall`"""
    whole = it.folder / "lib"
    shutil.copytree(it.root / "lib", whole, symlinks=True)
    it.srhpm("install", "--host", "ollama", "--path", str(it.root))
    shutil.rmtree(it.root / "lib")
    shutil.copytree(whole, it.root / "lib", symlinks=True)
    (entry,) = json.loads(it.srhpm("status", "--json"))["installations"]
    same(entry["state"], "wiped by an upgrade")
    it.srhpm("install", "--host", "ollama", "--path", str(it.root))
    it.answer("wide:2b", 4, num_ctx=1024)
    same(it.ran(), "ours")
    it.srhpm("uninstall", "--host", "ollama", "--path", str(it.root))
    same(state(it.root / "lib" / "ollama").keys(), state(whole / "ollama").keys())
    it.unload("wide:2b")
    it.answer("wide:2b", 4)
    same(it.ran(), "ollama")
    return "`status` says so; healed; then Ollama's own server again"


ROWS: Sequence[Callable[[Real, Files], str]] = (
    without_us, mode_all, apis, schema, tools, refusals, embeddings, keep_alive, num_ctx, hang_up,
    stop, killed, lora, projector, draft, parallel, go_template, clients, select, uninstall, wiped,
)  # fmt: skip

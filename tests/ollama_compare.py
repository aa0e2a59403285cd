"""The same requests to a real Ollama and to ``srhpm-plugin serve``, answers compared by fields.

    python tests/ollama_compare.py MODEL.gguf --real http://127.0.0.1:11434 --ours http://127.0.0.1:11435

creates four small models from MODEL (SmolLM2-135M-Instruct) on both, asks, and prints what differs
(DIFFERS: not on purpose);
``--record FILE`` writes down what the real one answered, with which CI compares (its version, its
answers' fields and all values that do not depend on time, place or sampling).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from serve_models import CHATML_THINKING, CHATML_TOOLS, variant

RECORDED = Path(__file__).with_name("serve") / "ollama" / "recorded.json"

# Differ from run to run, from machine to machine, or are what a model made up.
_VARIES = frozenset(
    {
        "bytes",
        "content",
        "context",
        "created_at",
        "digest",
        "embedding",
        "embeddings",
        "eval_count",
        "eval_duration",
        "expires_at",
        "id",
        "load_duration",
        "logprob",
        "modelfile",
        "modified_at",
        "prompt_eval_duration",
        "response",
        "size",
        "size_vram",
        "template",
        "thinking",
        "token",
        "total_duration",
        "version",
    }
)
_SAID = frozenset({"content", "response", "thinking"})

SYSTEM = {"role": "system", "content": "You answer briefly."}
HI = [SYSTEM, {"role": "user", "content": "Say hello."}]
FEW = {"temperature": 0, "num_predict": 2}
"""So few tokens that no answer ends before, whatever the machine's arithmetic."""
LETTERS = [*"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", "Rome"]}},
    "required": ["city"],
}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


WEATHER = [{"role": "user", "content": "What is the weather in London?"}]
CALL = {
    "id": "c1",
    "function": {"index": 0, "name": "get_weather", "arguments": {"city": "London"}},
}
ANSWERED = [
    *WEATHER,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "windy", "tool_name": "get_weather", "tool_call_id": "c1"},
]


@dataclass(frozen=True)
class Case:
    """A request. ``body`` of bytes is sent as it is."""

    name: str
    method: str
    path: str
    body: Any = None


def _post(name: str, path: str, /, **body: Any) -> Case:
    return Case(name, "POST", f"/api/{path}", body)


def _chat(name: str, **body: Any) -> Case:
    return _post(name, "chat", **{"model": "smol", "messages": HI, "options": FEW, **body})


def _generate(name: str, **body: Any) -> Case:
    asked = {"model": "smol", "prompt": "Say hello.", "system": "You answer briefly."}
    return _post(name, "generate", **{**asked, "options": FEW, **body})


ZERO = "sha256:" + "0" * 64

CASES: Sequence[Case] = (
    Case("root", "GET", "/"),
    Case("root, head", "HEAD", "/"),
    Case("version", "GET", "/api/version"),
    Case("version, head", "HEAD", "/api/version"),
    Case("status", "GET", "/api/status"),
    Case("no such route", "GET", "/api/nothing"),
    Case("wrong method", "GET", "/api/generate"),
    Case("tags", "GET", "/api/tags"),
    Case("tags, head", "HEAD", "/api/tags"),
    _post("show", "show", model="smol"),
    _post("show by its old name", "show", name="smol"),
    _post("show, system", "show", model="smol", system="x"),
    _post("show, tools", "show", model="able"),
    _post("show, thinking", "show", model="thinker"),
    _post("show, embedding", "show", model="embed"),
    _post("show nobody", "show", model="nobody"),
    _post("show nothing", "show"),
    # -- generate
    _generate("generate"),
    Case("ps", "GET", "/api/ps"),
    _generate("generate, whole", stream=False),
    _generate("generate, raw", stream=False, raw=True, system=""),
    _generate("generate, raw and system", raw=True),
    _generate("generate, json", stream=False, format="json"),
    _generate("generate, schema", stream=False, format=SCHEMA),
    _generate("generate, format unknown", stream=False, format="xml"),
    _generate("generate, logprobs", stream=False, logprobs=True),
    _generate("generate, top_logprobs", stream=False, logprobs=True, top_logprobs=2),
    _generate("generate, top_logprobs too many", top_logprobs=21),
    _generate("generate, context", stream=False, context=[1, 4093, 198, 26843, 2, 198]),
    _generate("generate, stop", stream=False, options={**FEW, "num_predict": 20, "stop": LETTERS}),
    _generate("generate, suffix", suffix="x"),
    _generate("generate, think", think=True),
    _generate("generate, think in no form", think="much"),
    _generate("generate, thinker", model="thinker", stream=False),
    _generate("generate, thinker told not to", model="thinker", think=False, stream=False),
    _generate("generate, debug", _debug_render_only=True),
    _generate("generate, load", prompt=""),
    _generate("generate, unload", prompt="", keep_alive=0),
    _generate("generate, keep_alive wrong", keep_alive="soon"),
    _generate("generate, option of the wrong type", options={"top_k": "a"}),
    _generate("generate, options unknown", stream=False, options={**FEW, "magic": 1}),
    _generate("generate, images but none can be seen", images=["aaaa"], stream=False),
    _generate("generate nobody", model="nobody"),
    _generate("generate with no model", model=""),
    _generate("generate, a name that is none", model="a b"),
    _generate("generate, model of the wrong type", model=5),
    _generate("generate with a model for embeddings", model="embed"),
    Case("generate without a body", "POST", "/api/generate", b""),
    Case("generate, no JSON", "POST", "/api/generate", b"{"),
    # -- chat
    _chat("chat"),
    _chat("chat, whole", stream=False),
    _chat("chat, json", stream=False, format="json"),
    _chat("chat, schema", stream=False, format=SCHEMA),
    _chat("chat, logprobs", logprobs=True, top_logprobs=1),
    _chat("chat, answer begun", messages=[*HI, {"role": "assistant", "content": "Hel"}]),
    _chat(
        "chat, answer begun, template of the file",
        model="able",
        messages=[*HI, {"role": "assistant", "content": "Hel"}],
        stream=False,
    ),
    _chat("chat, thinker", model="thinker"),
    _chat("chat, thinker, whole", model="thinker", stream=False),
    _chat("chat, thinker told not to", model="thinker", think=False, stream=False),
    _chat("chat, thinker, level", model="thinker", think="low", stream=False),
    _chat(
        "chat, tools",
        model="able",
        messages=WEATHER,
        tools=[TOOL],
        options={"temperature": 0, "num_predict": 60},
    ),
    _chat(
        "chat, tools, whole",
        model="able",
        messages=WEATHER,
        tools=[TOOL],
        stream=False,
        options={"temperature": 0, "num_predict": 60},
    ),
    _chat(
        "chat, tools, answered",
        model="able",
        messages=ANSWERED,
        tools=[TOOL],
        stream=False,
        options={"temperature": 0, "num_predict": 20},
    ),
    _chat("chat, tools that the template lacks", tools=[TOOL]),
    _chat("chat, think", think=True),
    _chat("chat, debug", _debug_render_only=True),
    _chat("chat, load", messages=[]),
    _chat("chat, unload", messages=[], keep_alive=0),
    _chat("chat nobody", model="nobody"),
    _chat("chat with a model for embeddings", model="embed"),
    Case("chat with nothing", "POST", "/api/chat", {}),
    # -- embeddings
    _post("embed", "embed", model="embed", input="hello"),
    _post("embed several, cut", "embed", model="embed", input=["hello", "you"], dimensions=4),
    _post("embed too much", "embed", model="embed", input="hello " * 5000, truncate=False),
    _post("embed nothing", "embed", model="embed"),
    _post("embed something else", "embed", model="embed", input=5),
    _post("embed with a model for text", "embed", model="smol", input="hello"),
    _post("embed nobody", "embed", model="nobody", input="hello"),
    _post("embeddings", "embeddings", model="embed", prompt="hello"),
    _post("embeddings of nothing", "embeddings", model="embed"),
    # -- models
    _post("copy", "copy", source="smol", destination="twin"),
    _post("copy nobody", "copy", source="nobody", destination="other"),
    _post("copy to no name", "copy", source="smol", destination="a b"),
    _post(
        "create from a model", "create", **{"model": "made", "from": "smol", "system": "Be brief."}
    ),
    _post(
        "create, whole",
        "create",
        **{"model": "made", "from": "smol", "stream": False},
        parameters={"temperature": 0.5, "stop": ["x"], "num_ctx": 1000},
        license="free",
        messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}],
    ),
    _post("show what was created", "show", model="made"),
    _chat("chat with what was created", model="made", stream=False),
    _post("create from nothing", "create", model="made2"),
    _post("create with a bad name", "create", **{"model": "a b", "from": "smol"}),
    _post(
        "create with an unknown parameter",
        "create",
        **{"model": "made3", "from": "smol"},
        parameters={"magic": 1},
    ),
    _post("create with a bad digest", "create", model="made4", files={"a.gguf": "sha256:00"}),
    Case("a blob that is not here", "HEAD", f"/api/blobs/{ZERO}"),
    Case("a blob with no digest", "HEAD", "/api/blobs/sha256:00"),
    Case("a blob that is another", "POST", f"/api/blobs/{ZERO}", b"abc"),
    Case("delete", "DELETE", "/api/delete", {"model": "twin"}),
    Case("delete what was created", "DELETE", "/api/delete", {"model": "made"}),
    Case("delete nobody", "DELETE", "/api/delete", {"model": "nobody"}),
    _post("push nobody", "push", model="nobody", stream=False),
)


_TEMPLATE = "the GGUF's own template is used; Ollama puts one of its own, with stops, in its place"
_WORDS = "other words"
_EARLIER = "wrong requests are refused before a model is loaded, with 400"
_PLAIN = (("values: error", _WORDS),)
_REFUSED = (("status", _EARLIER), ("values: error", _WORDS))
_SHOWN = (("fields: parameters", _TEMPLATE), ("values: parameters", _TEMPLATE))

DIFFERENCES: Mapping[str, Sequence[tuple[str, str]]] = {
    "version": (("fields: srhpm", "our version too"), ("values: srhpm", "our version too")),
    "status": (("values: cloud.source", "it cannot be switched on"),),
    "no such route": (("kind", "an error is always JSON"), ("values", _WORDS)),
    "wrong method": (("kind", "an error is always JSON"), ("values", _WORDS)),
    "show": _SHOWN,
    "show by its old name": _SHOWN,
    "show, system": _SHOWN,
    "show, embedding": _SHOWN,
    "show nobody": (("values: error", "the name as it was asked for"),),
    "generate, format unknown": _REFUSED,
    "generate, suffix": _PLAIN,
    "generate, thinker": (("fields: thinking", "thoughts are told apart here too"),),
    "generate, keep_alive wrong": _PLAIN,
    "generate, option of the wrong type": (("status", _EARLIER),),
    "generate, images but none can be seen": _PLAIN,
    "generate with no model": _REFUSED,
    "generate, a name that is none": (
        ("status", "names of other hosts' models may have any form"),
        ("values: error", _WORDS),
    ),
    "generate, model of the wrong type": _PLAIN,
    "generate, no JSON": _PLAIN,
    "chat, answer begun": (("values: prompt_eval_count", _TEMPLATE),),
    "chat, tools that the template lacks": _PLAIN,
    "embed with a model for text": (
        ("status", "text models embed too, by their last token"),
        ("values", "text models embed too, by their last token"),
    ),
    "chat with what was created": (("values: prompt_eval_count", _TEMPLATE),),
    "create with an unknown parameter": (
        ("status", "Ollama stores it"),
        ("kind", "Ollama stores it"),
        ("values", "Ollama stores it"),
    ),
    "create with a bad digest": (("status", _EARLIER), ("kind", _EARLIER)),
    "push nobody": (("status", "nothing is uploaded"), ("values: error", _WORDS)),
}
"""What differs on purpose: the beginning of the line that :func:`differences` gives, and why."""


@dataclass(frozen=True)
class Answer:
    """What came, without what varies.

    Attributes:
        kind: ``lines``, ``json``, ``text`` or ``empty``.
        fields: path of each field (``message.content``; ``[]`` in lists) and its JSON types; of a
            stream those of all lines but the last.
        last: those of the last line.
        values: of the fields that must not vary.
        said: text of the model.
    """

    status: int
    kind: str
    fields: Mapping[str, str] = field(default_factory=dict)
    last: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""

    def recorded(self) -> dict[str, Any]:
        """For the file."""
        kept = {k: v for k, v in vars(self).items() if k != "said" and v not in ({}, "")}
        return {k: dict(v) if isinstance(v, Mapping) else v for k, v in kept.items()}


def ask(client: httpx.Client, case: Case) -> Answer:
    """Sends one request."""
    body = case.body
    content = body if isinstance(body, bytes) else None if body is None else json.dumps(body)
    answer = client.request(case.method, case.path, content=content)
    kind = answer.headers.get("content-type", "").partition(";")[0]
    if case.method == "HEAD" or not answer.content:
        return Answer(answer.status_code, "empty")
    if kind == "application/x-ndjson":
        records = [json.loads(line) for line in answer.text.splitlines()]
        first = _shape(records[:-1])
        return Answer(
            answer.status_code,
            "lines",
            {path.removeprefix("[]."): types for path, types in first.items() if path != "[]"},
            _shape(records[-1]),
            _values(records[-1]),
            "".join(map(_said, records)),
        )
    if kind == "application/json":
        said = answer.json()
        text = _said(said) if isinstance(said, dict) else ""
        return Answer(answer.status_code, "json", _shape(said), {}, _values(said), text)
    return Answer(answer.status_code, "text", values={"": answer.text})


def _shape(value: Any, path: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        found = {}
        for key, inner in value.items():
            found.update(_shape(inner, f"{path}.{key}" if path else key))
        return found or {path: "object"}
    if isinstance(value, list):
        types: dict[str, set[str]] = {}
        for item in value[:200]:
            for inner_path, kind in _shape(item, f"{path}[]").items():
                types.setdefault(inner_path, set()).update(kind.split("|"))
        return {p: "|".join(sorted(t)) for p, t in types.items()} or {path: "list"}
    return {path: _type(value)}


def _type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return "string" if isinstance(value, str) else "number"


def _values(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if key not in _VARIES:
                found.update(_values(inner, f"{path}.{key}" if path else key))
        return found
    if isinstance(value, list):
        if any(isinstance(item, dict | list) for item in value):
            return {}
        return {path: sorted(value, key=str)}
    if path == "parameters":  # of a model, in any order
        value = "\n".join(sorted(value.splitlines()))
    return {path: value}


def _said(record: Mapping[str, Any]) -> str:
    message = record.get("message") or {}
    return "".join(str(part.get(key) or "") for part in (record, message) for key in sorted(_SAID))


def differences(real: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    """What differs between two recorded answers, one line each."""
    found = [
        f"{name}: {real.get(name)} / {ours.get(name)}"
        for name in ("status", "kind")
        if real.get(name) != ours.get(name)
    ]
    if found:
        return found + _different("values", real, ours)
    return [line for part in ("fields", "last", "values") for line in _different(part, real, ours)]


def _different(part: str, real: Mapping[str, Any], ours: Mapping[str, Any]) -> list[str]:
    a, b = real.get(part, {}), ours.get(part, {})
    lines = []
    for path in sorted({*a, *b}):
        if path not in b:
            lines.append(f"{part}: {path} is missing")
        elif path not in a:
            lines.append(f"{part}: {path} is ours alone")
        elif a[path] != b[path]:
            lines.append(f"{part}: {path}: {a[path]!r} / {b[path]!r}")
    return lines


def unexplained(name: str, lines: Sequence[str]) -> list[str]:
    """Differences that :data:`DIFFERENCES` does not have, and its entries that do not occur."""
    known = [start for start, _ in DIFFERENCES.get(name, ())]
    new = [line for line in lines if not line.startswith(tuple(known))]
    gone = [start for start in known if not any(line.startswith(start) for line in lines)]
    return [*new, *(f"no longer so: {start}" for start in gone)]


def make_files(model: Path, folder: Path) -> dict[str, Path]:
    """The models: plain, with tools, with thoughts, for embeddings."""
    return {
        "smol": model,
        "able": variant(model, folder / "able.gguf", tokenizer__chat_template=CHATML_TOOLS),
        "thinker": variant(
            model, folder / "thinker.gguf", tokenizer__chat_template=CHATML_THINKING
        ),
        "embed": variant(model, folder / "embed.gguf", llama__pooling_type=1),
    }


def create(client: httpx.Client, files: Mapping[str, Path]) -> None:
    """Makes the models through the API: a blob each, then ``create``."""
    for name, path in files.items():
        content = path.read_bytes()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        if client.head(f"/api/blobs/{digest}").status_code != 200:
            client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
        body = {"model": name, "files": {path.name: digest}, "stream": False}
        client.post("/api/create", json=body).raise_for_status()


def connect(url: str) -> httpx.Client:
    """Slow machines need minutes for a load."""
    return httpx.Client(base_url=url, timeout=600.0, trust_env=False)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--real", required=True)
    parser.add_argument("--ours")
    parser.add_argument("--record", type=Path)
    options = parser.parse_args()
    recorded: dict[str, Any] = {}
    bad = 0
    with tempfile.TemporaryDirectory() as folder, connect(options.real) as real:
        files = make_files(options.model, Path(folder))
        create(real, files)
        version = real.get("/api/version").json()["version"]
        ours = connect(options.ours) if options.ours else None
        if ours is not None:
            create(ours, files)
        for case in CASES:
            there = ask(real, case)
            recorded[case.name] = there.recorded()
            if ours is None:
                continue
            here = ask(ours, case)
            lines = differences(there.recorded(), here.recorded())
            wrong = unexplained(case.name, lines)
            bad += bool(wrong)
            print(f"{case.name}: {'DIFFERS' if wrong else 'differs' if lines else 'same'}")
            if there.said != here.said:
                lines.append(f"text: {there.said!r} / {here.said!r}")
            for line in [*lines, *(line for line in wrong if line not in lines)]:
                print(f"    {line}")
    if options.record:
        data = {"version": version, "answers": recorded}
        options.record.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

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
from ollama_cases import CASES, DIFFERENCES, Case
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
        body = {"model": name, "files": {path.name: upload(client, path)}, "stream": False}
        client.post("/api/create", json=body).raise_for_status()


def upload(client: httpx.Client, path: Path) -> str:
    """Sends a file as a blob, if it is not there, and returns its digest."""
    content = path.read_bytes()
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    if client.head(f"/api/blobs/{digest}").status_code != 200:
        client.post(f"/api/blobs/{digest}", content=content).raise_for_status()
    return digest


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

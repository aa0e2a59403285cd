"""What a model's store sets, for requests that do not say it themselves.

The rules are those of Ollama's ``/v1`` (``openai/openai.go``, ``anthropic/anthropic.go``,
``server/routes.go`` there): OpenAI's own defaults of temperature and top_p come before the store's,
other sampling follows the store, then Ollama's defaults; a system message of the store's is put
first unless the conversation begins with one; the store's turns come before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..interfaces import Need, ServedModel
from .check import Body

# llama-server's own are others (top_p 0.95, min_p 0.05).
_OLLAMA: Mapping[str, Any] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
_OPENAI: Mapping[str, Any] = {"temperature": 1.0, "top_p": 1.0}
_LONG = 1 << 17
_LIMITS = ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens")
_NUMBERS = (*_OLLAMA, "seed")


def need_of(model: ServedModel, embedding: bool = False) -> Need:
    """How its store wants it loaded."""
    said = model.parameters
    return Need(
        ctx=model.ctx,
        embedding=embedding,
        gpu_layers=_count(said.get("num_gpu"), 0),
        threads=_count(said.get("num_thread"), 1),
    )


def openai_sampling(body: Body, model: ServedModel) -> None:
    """For chat completions, completions and responses."""
    _sampling(body, model, _OPENAI)


def anthropic_sampling(body: Body, model: ServedModel) -> None:
    """For messages; the API's own name for stop texts wins over the store's."""
    if "stop_sequences" in body:
        body.setdefault("stop", body["stop_sequences"])
    _sampling(body, model, {})


def chat(body: Body, model: ServedModel) -> None:
    """The store's system message and turns before those of ``messages``."""
    said = body["messages"]
    first = [*_system(model)] if said[0].get("role") != "system" else []
    body["messages"] = [*first, *(dict(m) for m in model.messages), *said]


def anthropic_chat(body: Body, model: ServedModel) -> None:
    """The same, where a system message is a field of its own."""
    if model.system and not body.get("system"):
        body["system"] = model.system
    turns = (dict(m) for m in model.messages if m.get("role") in ("user", "assistant"))
    body["messages"] = [*turns, *body["messages"]]


def responses(body: Body, model: ServedModel) -> None:
    """The same for ``/v1/responses``, whose system message is ``instructions``."""
    said = body["input"]
    items = said if isinstance(said, list) else [{"role": "user", "content": said}]
    first = items[0].get("role") if items and isinstance(items[0], dict) else None
    if model.system and not body.get("instructions") and first not in ("system", "developer"):
        body["instructions"] = model.system
    if model.messages:
        body["input"] = [*(dict(m) for m in model.messages), *items]


def _system(model: ServedModel) -> list[dict[str, Any]]:
    return [{"role": "system", "content": model.system}] if model.system else []


def _sampling(body: Body, model: ServedModel, api: Mapping[str, Any]) -> None:
    store = {k: v for k, v in model.parameters.items() if k in _NUMBERS and _is_number(v)}
    for key, value in {**_OLLAMA, **store, **api}.items():
        if body.get(key) is None:
            body[key] = value
    if body["repeat_last_n"] == -1:  # Ollama's word for the whole context
        body["repeat_last_n"] = model.ctx or _LONG
    stops = model.parameters.get("stop")
    if stops and body.get("stop") is None:
        body["stop"] = list(stops) if isinstance(stops, list | tuple) else [str(stops)]
    limit = model.parameters.get("num_predict")
    if isinstance(limit, int) and limit > 0 and all(body.get(name) is None for name in _LIMITS):
        body["max_tokens"] = limit


def _count(value: object, least: int) -> int | None:
    """Ollama's -1 leaves it to the program, as a number that is none does."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

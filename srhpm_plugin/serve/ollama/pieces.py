"""The engine's two ways of streaming text (a conversation, a bare prompt) as one."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from ..interfaces import Engine
from .engine import events
from .errors import ApiError


@dataclass(frozen=True)
class Piece:
    """Some of an answer.

    Attributes:
        content, thinking: text.
        logprobs: per token ``{"token", "logprob", "bytes", "top_logprobs"}``.
        reason: why it ended, ``stop`` or ``length``; ``None``: it goes on.
        tool_calls: all of them, with the last piece.
        timings: llama-server's, with the last piece.
    """

    content: str = ""
    thinking: str = ""
    logprobs: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    timings: Mapping[str, Any] = field(default_factory=dict)


async def of_chat(engine: Engine, body: Mapping[str, Any]) -> AsyncGenerator[Piece, None]:
    """The answer to a conversation. Raises what :func:`.engine.events` does."""
    calls: dict[int, dict[str, Any]] = {}
    async with aclosing(events(engine, "/v1/chat/completions", body)) as stream:
        async for event in stream:
            if not event.get("choices"):
                continue
            choice = event["choices"][0]
            delta = choice.get("delta") or {}
            _collect(calls, delta.get("tool_calls") or ())
            reason = choice.get("finish_reason")
            piece = Piece(
                content=delta.get("content") or "",
                thinking=delta.get("reasoning_content") or "",
                logprobs=_logprobs((choice.get("logprobs") or {}).get("content")),
                reason=_reason(reason),
                tool_calls=tuple(_tool_calls(calls)) if reason else (),
                timings=event.get("timings") or {},
            )
            if piece.content or piece.thinking or piece.logprobs or piece.reason:
                yield piece


async def of_prompt(
    engine: Engine, body: Mapping[str, Any], path: str = "/completion"
) -> AsyncGenerator[Piece, None]:
    """The continuation of a prompt; ``/infill`` answers in the same way."""
    async with aclosing(events(engine, path, body)) as stream:
        async for event in stream:
            reason = None
            if event.get("stop"):
                reason = "length" if event.get("stop_type") == "limit" else "stop"
            piece = Piece(
                content=event.get("content") or "",
                logprobs=_logprobs(event.get("completion_probabilities")),
                reason=reason,
                timings=event.get("timings") or {},
            )
            if piece.content or piece.logprobs or piece.reason:
                yield piece


def _reason(finish: str | None) -> str | None:
    if finish is None:
        return None
    return "length" if finish == "length" else "stop"


def _logprobs(tokens: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple(_logprob(token) for token in tokens or ())


def _logprob(token: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_one(token),
        "top_logprobs": [_one(other) for other in token.get("top_logprobs") or ()],
    }


def _one(token: Mapping[str, Any]) -> dict[str, Any]:
    return {name: token[name] for name in ("token", "logprob", "bytes") if name in token}


def _collect(calls: dict[int, dict[str, Any]], deltas: Any) -> None:
    for delta in deltas:
        call = calls.setdefault(delta.get("index", 0), {"id": "", "name": "", "arguments": ""})
        function = delta.get("function") or {}
        call["id"] += delta.get("id") or ""
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


def _tool_calls(calls: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """In Ollama's form: arguments are an object."""
    result = []
    for index in sorted(calls):
        call = calls[index]
        try:
            arguments = json.loads(call["arguments"]) if call["arguments"].strip() else {}
        except ValueError:
            what = f"the model's call of {call['name']} has arguments that are no JSON"
            raise ApiError(500, f"{what}: allow more tokens (num_predict), or ask again") from None
        function = {"index": index, "name": call["name"], "arguments": arguments}
        result.append({"id": call["id"], "function": function})
    return result

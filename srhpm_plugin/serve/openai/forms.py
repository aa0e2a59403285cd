"""Errors in the form that a client of each API reads.

OpenAI's is ``{"error": {"message", "type", "code", "param"}}``, in a stream a ``data:`` line of its
own; ``/v1/responses`` streams an ``error`` event with those fields. Anthropic's is
``{"type": "error", "error": {"type", "message"}}``, in a stream an ``error`` event.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# By HTTP status; Anthropic's documentation lists its names, OpenAI's clients go by the status.
_OPENAI = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    501: "invalid_request_error",
    503: "overloaded_error",
    529: "overloaded_error",
}


@dataclass(eq=False)  # not frozen: Python writes its traceback into it
class Problem(Exception):
    """A request that is not answered.

    Attributes:
        status: HTTP status.
        message: what is wrong and what to do.
        code: OpenAI's word for it, e.g. ``model_not_found``.
        param: the field that is wrong.
        headers: sent with it.
    """

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Form(Protocol):
    """How one API says that something is wrong, and that it is still at work."""

    def whole(self, problem: Problem) -> bytes:
        """The body of an answer."""

    def event(self, problem: Problem) -> bytes:
        """A piece of a stream that has begun."""

    def alive(self, words: str) -> bytes:
        """A piece of a stream that keeps the connection open and means nothing."""


class OpenAI:
    """Chat completions, completions, embeddings, models."""

    def whole(self, problem: Problem) -> bytes:
        return _json({"error": self.fields(problem)})

    def event(self, problem: Problem) -> bytes:
        return b"data: " + self.whole(problem) + b"\n\n"

    def alive(self, words: str) -> bytes:
        return _comment(words)

    def fields(self, problem: Problem) -> dict[str, Any]:
        """The inside of ``error``."""
        kind = _OPENAI.get(problem.status, "api_error" if problem.status >= 500 else _OPENAI[400])
        return {
            "message": problem.message,
            "type": kind,
            "code": problem.code,
            "param": problem.param,
        }


class Responses(OpenAI):
    """``/v1/responses``."""

    def event(self, problem: Problem) -> bytes:
        inner = self.fields(problem)
        said = {"type": "error", **{k: inner[k] for k in ("code", "message", "param")}}
        return b"event: error\ndata: " + _json(said) + b"\n\n"


class Anthropic:
    """``/v1/messages``."""

    def whole(self, problem: Problem) -> bytes:
        kind = _ANTHROPIC.get(problem.status, "api_error")
        return _json({"type": "error", "error": {"type": kind, "message": problem.message}})

    def event(self, problem: Problem) -> bytes:
        return b"event: error\ndata: " + self.whole(problem) + b"\n\n"

    def alive(self, words: str) -> bytes:
        return b'event: ping\ndata: {"type":"ping"}\n\n'


_NOT_UNDERSTOOD = ("Failed to parse tools", "Failed to parse messages")


def from_engine(status: int, body: bytes) -> Problem:
    """What ``llama-server`` says is wrong."""
    message, code = body[:500].decode("utf-8", "replace").strip(), None
    try:
        said = json.loads(body)["error"]
        message = str(said["message"])
        if said.get("type") == "exceed_context_size_error":
            code = "context_length_exceeded"  # OpenAI's word, which clients look for
        if message.startswith(_NOT_UNDERSTOOD):
            status = 400  # for which it has 500
    except (ValueError, KeyError, TypeError):
        pass
    return Problem(status, message or f"the model's server answered {status}", code)


def _json(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _comment(words: str) -> bytes:
    """Event streams ignore lines that begin with a colon."""
    return b": " + " ".join(words.split()).encode() + b"\n\n"

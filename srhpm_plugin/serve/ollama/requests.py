"""What clients ask for, parsed and checked; names and rules are those of Ollama's ``api/types.go``.

Unknown fields are passed over, as Ollama does.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .. import durations
from .body import Fields
from .errors import ApiError
from .options import check_option

Think = bool | str
_LEVELS: Final = ("high", "medium", "low", "max")
_MOST_LOGPROBS: Final = 20
_MOST_IMAGES: Final = 64
_MOST_TOOLS: Final = 1024
_MOST_CONTEXT: Final = 1 << 22
_MOST_INPUTS: Final = 1 << 12


@dataclass(frozen=True)
class Message:
    """A turn of a conversation.

    Attributes:
        images: pictures or sounds, decoded.
        tool_calls: ``{"id", "function": {"index", "name", "arguments": object}}``.
        tool_name, tool_call_id: of the call that a ``tool`` message answers.
    """

    role: str
    content: str = ""
    thinking: str = ""
    images: tuple[bytes, ...] = ()
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    tool_name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class Asked:
    """What requests for text have in common.

    Attributes:
        model: its name as the client writes it.
        stream: answer in pieces; Ollama's default.
        schema: JSON schema that the answer must follow; ``None``: free text.
        keep_alive: seconds, negative for ever; ``None``: the default.
        options: checked, those that are known.
        think: whether (or how hard) to think first; ``None``: if the model can.
        truncate: drop old messages, or the middle of the prompt, when the context is too small.
        shift: the last resort of the two may be used.
        render_only: answer with the rendered prompt.
        logprobs, top_logprobs: probabilities wanted, and those of how many alternatives.
    """

    model: str
    stream: bool = True
    schema: Mapping[str, Any] | None = None
    keep_alive: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    think: Think | None = None
    truncate: bool = True
    shift: bool = True
    render_only: bool = False
    logprobs: bool = False
    top_logprobs: int = 0


@dataclass(frozen=True)
class Chat(Asked):
    """``/api/chat``; ``tools`` are OpenAI's ``{"type": "function", "function": {...}}``."""

    messages: tuple[Message, ...] = ()
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Generate(Asked):
    """``/api/generate``; ``context`` is ``None`` when none was sent."""

    prompt: str = ""
    suffix: str = ""
    system: str = ""
    template: str = ""
    context: tuple[int, ...] | None = None
    raw: bool = False
    images: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Embed:
    """``/api/embed``."""

    model: str
    inputs: tuple[str, ...]
    keep_alive: float | None
    options: Mapping[str, Any]
    truncate: bool = True
    dimensions: int = 0


def chat(body: Fields) -> Chat:
    """Raises ApiError 400."""
    return Chat(
        **_asked(body),
        messages=tuple(message(m) for m in body.objects("messages")),
        tools=tuple(_tool(t) for t in body.objects("tools", _MOST_TOOLS)),
    )


def generate(body: Fields) -> Generate:
    """Raises ApiError 400."""
    asked = Generate(
        **_asked(body),
        prompt=body.text("prompt"),
        suffix=body.text("suffix"),
        system=body.text("system"),
        template=body.text("template"),
        context=_context(body),
        raw=body.flag("raw", False),
        images=_images(body),
    )
    if asked.raw and (asked.template or asked.system or asked.context):
        raise ApiError(400, "raw mode does not support template, system, or context")
    return asked


def embed(body: Fields) -> Embed:
    """Raises ApiError 400."""
    said = body.raw("input")
    if isinstance(said, str):
        inputs: tuple[str, ...] = (said,) if said else ()
    elif said is None:
        inputs = ()
    else:
        if not isinstance(said, list) or not all(isinstance(text, str) for text in said):
            raise ApiError(400, "invalid input type")
        inputs = body.texts("input", _MOST_INPUTS)
    return Embed(
        model=model_name(body),
        inputs=inputs,
        keep_alive=_keep_alive(body),
        options=_options(body),
        truncate=body.flag("truncate", True),
        dimensions=body.number("dimensions", 0, 0, 1 << 20),
    )


def embeddings(body: Fields) -> Embed:
    """The older ``/api/embeddings``, of one text. Raises ApiError 400."""
    prompt = body.text("prompt")
    return Embed(
        model=model_name(body),
        inputs=(prompt,) if prompt else (),
        keep_alive=_keep_alive(body),
        options=_options(body),
    )


def model_name(body: Fields) -> str:
    """``model``, or ``name`` as older clients have it. Raises ApiError 400 when there is none."""
    name = body.name("model") or body.name("name")
    if not name.strip():
        raise ApiError(400, "model is required")
    return name


def message(body: Fields) -> Message:
    """One turn. Raises ApiError 400."""
    return Message(
        role=body.text("role").lower(),
        content=body.text("content"),
        thinking=body.text("thinking"),
        images=_images(body),
        tool_calls=tuple(_tool_call(c) for c in body.objects("tool_calls", _MOST_TOOLS)),
        tool_name=body.name("tool_name"),
        tool_call_id=body.name("tool_call_id"),
    )


def _asked(body: Fields) -> dict[str, Any]:
    if not 0 <= body.number("top_logprobs", 0, -(1 << 31), 1 << 31) <= _MOST_LOGPROBS:
        raise ApiError(400, f"top_logprobs must be between 0 and {_MOST_LOGPROBS}")
    return {
        "model": model_name(body),
        "stream": body.flag("stream", True),
        "schema": _schema(body.raw("format")),
        "keep_alive": _keep_alive(body),
        "options": _options(body),
        "think": _think(body.raw("think")),
        "truncate": body.flag("truncate", True),
        "shift": body.flag("shift", True),
        "render_only": body.flag("_debug_render_only", False),
        "logprobs": body.flag("logprobs", False),
        "top_logprobs": body.number("top_logprobs", 0, 0, _MOST_LOGPROBS),
    }


def _options(body: Fields) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in (body.object("options") or {}).items():
        found.update(check_option(name, value))
    return found


def _keep_alive(body: Fields) -> float | None:
    value = body.raw("keep_alive")
    if value is None:
        return None
    try:
        return durations.seconds(value)
    except ValueError as error:
        raise ApiError(400, f"keep_alive: {error}") from None


def _think(value: Any) -> Think | None:
    if value is None or isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise ApiError(400, 'think must be true, false, "high", "medium", "low" or "max"')
    if value not in _LEVELS:
        words = '(must be "high", "medium", "low", "max", true, or false)'
        raise ApiError(400, f"invalid think value: {json.dumps(value[:40])} {words}")
    return value


def _schema(value: Any) -> Mapping[str, Any] | None:
    if value is None or value == "":
        return None
    if value == "json":
        return {"type": "object"}
    if isinstance(value, dict):
        return value
    what = 'expected "json" or a valid JSON Schema object'
    raise ApiError(400, f"invalid format: {json.dumps(value)[:80]}; {what}")


def _context(body: Fields) -> tuple[int, ...] | None:
    if body.raw("context") is None:
        return None
    tokens = body.items("context", _MOST_CONTEXT)
    if not all(type(token) is int and 0 <= token < 1 << 31 for token in tokens):
        raise body.fail("context", "a list of token ids")
    return tuple(tokens)


def _images(body: Fields) -> tuple[bytes, ...]:
    found = []
    for text in body.texts("images", _MOST_IMAGES):
        data = text.partition(",")[2] if text.startswith("data:") else text
        try:
            found.append(base64.b64decode("".join(data.split()), validate=True))
        except (binascii.Error, ValueError):
            raise body.fail("images", "a list of base64 data") from None
    return tuple(found)


def _tool(body: Fields) -> Mapping[str, Any]:
    function = body.inner("function")
    name = function.name("name")
    if not name:
        raise function.fail("name", "the name of a function")
    parameters = function.object("parameters") or {"type": "object", "properties": {}}
    said = {"name": name, "parameters": parameters}
    if description := function.text("description"):
        said["description"] = description
    return {"type": "function", "function": said}


def _tool_call(body: Fields) -> Mapping[str, Any]:
    function = body.inner("function")
    return {
        "id": body.name("id"),
        "function": {
            "index": function.number("index", 0, 0, _MOST_TOOLS),
            "name": function.name("name"),
            "arguments": function.object("arguments") or {},
        },
    }

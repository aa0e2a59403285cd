"""Bodies of requests, looked at before anything is loaded for them.

Checked is what would otherwise cost a load, or ask for what a request may not have. The rest is
``llama-server``'s to refuse: it knows its own fields best.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any

from .forms import Problem

_LONGEST_NAME = 1024

# A slot is the scheduler's to give; what comes back is not a client's to shape.
_NOT_THEIRS = ("id_slot", "response_fields")

_NUMBERS: Mapping[str, type | types.UnionType] = {
    "max_tokens": int,
    "max_completion_tokens": int,
    "max_output_tokens": int,
    "n": int,
    "seed": int,
    "top_k": int,
    "temperature": int | float,
    "top_p": int | float,
    "min_p": int | float,
    "presence_penalty": int | float,
    "frequency_penalty": int | float,
}

_MOST_DEPTH = 256  # of JSON within JSON: far more than any schema has, far less than a stack

Body = dict[str, Any]


def parse(raw: bytes) -> Body:
    """A request's body.

    Raises:
        Problem: it is not a JSON object with a model and a sensible ``stream``.
    """
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise Problem(400, "the body must be a JSON object")
    if _deeper(body, _MOST_DEPTH):
        raise Problem(400, f"the body is nested more than {_MOST_DEPTH} deep")
    model = body.get("model")
    if not isinstance(model, str) or not 0 < len(model.strip()) <= _LONGEST_NAME:
        raise Problem(400, "model is required: see /v1/models for their names", param="model")
    if not isinstance(body.get("stream"), bool | None):
        raise Problem(400, "stream must be true or false", param="stream")
    for name, kinds in _NUMBERS.items():
        value = body.get(name)
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            what = "a whole number" if kinds is int else "a number"
            raise Problem(400, f"{name} must be {what}", param=name)
    for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
        if body.get(name) is not None and body[name] < 1:
            raise Problem(400, f"{name} must be at least 1", param=name)
    if not _texts(body.get("stop")):
        raise Problem(400, "stop must be a text or a list of texts", param="stop")
    for name in _NOT_THEIRS:
        body.pop(name, None)
    return body


def _parts(value: object) -> bool:
    """A text, or a list of objects that say what they are; or nothing."""
    if isinstance(value, list):
        return all(isinstance(part, dict) for part in value)
    return isinstance(value, str | None)


def _texts(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, str | None)


def messages(body: Body) -> None:
    """A conversation.

    Raises:
        Problem: it is none, or it names pictures elsewhere than in itself.
    """
    if not _parts(body.get("system")):  # of Anthropic's
        raise Problem(400, "system must be a text or a list of parts", param="system")
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        raise Problem(400, "messages must be a list with at least one message", param="messages")
    for i, message in enumerate(said):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Problem(400, "a message is an object with a role", param=f"messages[{i}]")
        if not _parts(message.get("content")):
            what = "a message's content is a text or a list of parts"
            raise Problem(400, what, param=f"messages[{i}]")
        _no_addresses(message.get("content"), f"messages[{i}]")


def prompt(body: Body) -> None:
    """Text to go on with.

    Raises:
        Problem: it is neither text nor tokens.
    """
    said = body.get("prompt")
    if not isinstance(said, str) and not _list_of_texts_or_tokens(said):
        raise Problem(400, "prompt must be a text, texts, tokens or lists of them", param="prompt")


def texts(body: Body) -> None:
    """What to embed.

    Raises:
        Problem: it is neither text nor tokens, or empty.
    """
    said = body.get("input")
    empty = said == "" or (isinstance(said, list) and "" in said)
    if empty or (not isinstance(said, str) and not _list_of_texts_or_tokens(said)):
        raise Problem(400, "input must be a text, texts, tokens or lists of them", param="input")


def _list_of_texts_or_tokens(value: object) -> bool:
    if not isinstance(value, list) or not value:
        return False
    texts = all(isinstance(item, str) for item in value)
    return texts or _tokens(value) or all(_tokens(item) for item in value)


def _tokens(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)
    )


def turns(body: Body) -> None:
    """The input of ``/v1/responses``.

    Raises:
        Problem: it is none, or builds on an answer that nobody keeps.
    """
    said = body.get("input")
    if not said or not _parts(said):
        raise Problem(400, "input must be a text or a list of items", param="input")
    if not isinstance(body.get("instructions"), str | None):
        raise Problem(400, "instructions must be a text", param="instructions")
    if body.get("previous_response_id") is not None:
        raise Problem(
            400,
            "answers are not kept here: send the conversation's earlier turns in input",
            param="previous_response_id",
        )
    if isinstance(said, list):
        for i, item in enumerate(said):
            if isinstance(item, dict):
                _no_addresses(item.get("content"), f"input[{i}]")


def _no_addresses(content: object, where: str) -> None:
    """Pictures and sounds come inside the request: the server fetches nothing for a client, from
    this machine's disk or network."""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict):
            continue
        _no_addresses(part.get("content"), where)  # results of tools hold parts themselves
        # OpenAI's chat, OpenAI's responses, Anthropic's.
        for key in ("image_url", "input_audio", "audio_url", "video_url", "source"):
            url = part.get(key)
            if isinstance(url, Mapping):
                url = url.get("url")
            if isinstance(url, str) and not url.startswith("data:"):
                raise Problem(
                    400,
                    "addresses are not fetched: send the content itself as a data: URL",
                    param=where,
                )


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _deeper(content: object, most: int) -> bool:
    layer = [content]
    for _ in range(most):
        inner: list[object] = []
        for value in layer:
            if isinstance(value, dict):
                inner += value.values()
            elif isinstance(value, list):
                inner += value
        layer = [value for value in inner if isinstance(value, dict | list)]
        if not layer:
            return False
    return True

"""Bodies of requests, looked at before anything is loaded for them.

Checked is what would otherwise cost a load, or ask for what a request may not have. The rest is
``llama-server``'s to refuse: it knows its own fields best.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .forms import Problem

_LONGEST_NAME = 1024

# A slot is the scheduler's to give; what comes back is not a client's to shape.
_NOT_THEIRS = ("id_slot", "response_fields")

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
    if not isinstance(body.get("stream") or False, bool):
        raise Problem(400, "stream must be true or false", param="stream")
    for name in _NOT_THEIRS:
        body.pop(name, None)
    return body


def messages(body: Body) -> None:
    """A conversation.

    Raises:
        Problem: it is none, or it names pictures elsewhere than in itself.
    """
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        raise Problem(400, "messages must be a list with at least one message", param="messages")
    for i, message in enumerate(said):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Problem(400, "a message is an object with a role", param=f"messages[{i}]")
        _no_addresses(message.get("content"), f"messages[{i}]")


def prompt(body: Body) -> None:
    """Text to go on with.

    Raises:
        Problem: it is neither text nor tokens.
    """
    if not isinstance(body.get("prompt"), str | list):
        raise Problem(400, "prompt must be a text or a list", param="prompt")


def texts(body: Body) -> None:
    """What to embed.

    Raises:
        Problem: it is neither text nor tokens, or empty.
    """
    if not isinstance(body.get("input"), str | list) or not body["input"]:
        raise Problem(400, "input must be a text or a list of texts", param="input")


def turns(body: Body) -> None:
    """The input of ``/v1/responses``.

    Raises:
        Problem: it is none, or builds on an answer that nobody keeps.
    """
    said = body.get("input")
    if not isinstance(said, str | list) or not said:
        raise Problem(400, "input must be a text or a list of items", param="input")
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

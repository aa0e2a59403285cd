"""Calls to the engine that was lent: JSON in, JSON or a stream of it out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from ..interfaces import Engine
from .errors import ApiError, from_engine

_LONGEST_EVENT = 64 << 20


async def call(engine: Engine, path: str, body: Mapping[str, Any]) -> Any:
    """The answer to a request that is answered at once.

    Raises:
        EngineError: the engine refused it.
        ServerGoneError: the engine ended.
    """
    status, said = await engine.http.ask(path, _bytes(body))
    if status != 200:
        raise from_engine(status, said)
    return json.loads(said)


async def events(
    engine: Engine, path: str, body: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """The messages of a streamed answer. Closing it closes the connection, which frees the slot.

    Raises:
        EngineError: the engine refused it, or failed on the way.
        ServerGoneError: the engine ended.
    """
    async with engine.http.asking(path, _bytes({**body, "stream": True})) as answer:
        if answer.status != 200:
            raise from_engine(answer.status, await answer.read())
        rest = b""
        while part := await answer.part():
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > _LONGEST_EVENT:
                raise ApiError(500, "the engine's answer does not come in lines")
            for line in lines:
                # Comments and the closing mark are none.
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise from_engine(500, event)
                yield event


async def tokenize(engine: Engine, text: str, special: bool = False) -> list[int]:
    """Token ids; markers of special tokens are recognised. ``special`` adds the model's BOS."""
    said = await call(engine, "/tokenize", {"content": text, "add_special": special})
    tokens: list[int] = said["tokens"]
    return tokens


async def detokenize(engine: Engine, tokens: Sequence[int]) -> str:
    """The text of tokens."""
    text: str = (await call(engine, "/detokenize", {"tokens": list(tokens)}))["content"]
    return text


async def render(engine: Engine, body: Mapping[str, Any]) -> str:
    """The prompt that the engine makes of a conversation."""
    prompt: str = (await call(engine, "/apply-template", body))["prompt"]
    return prompt


def _bytes(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")

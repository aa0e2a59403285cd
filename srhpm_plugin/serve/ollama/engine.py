"""Calls to the engine that was lent: JSON in, JSON or a stream of it out."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from ..interfaces import Engine
from .errors import ApiError, from_engine

_LONGEST_EVENT = 64 << 20


async def call(engine: Engine, path: str, body: Mapping[str, Any]) -> Any:
    """The answer to a request that is answered at once.

    Raises:
        EngineError: the engine refused it.
        httpx.TransportError: the engine ended.
    """
    answer = await engine.http.post(path, content=_bytes(body), headers=_JSON)
    if answer.status_code != 200:
        raise from_engine(answer.status_code, answer.content)
    return answer.json()


async def events(
    engine: Engine, path: str, body: Mapping[str, Any]
) -> AsyncGenerator[dict[str, Any], None]:
    """The messages of a streamed answer. Closing it closes the connection, which frees the slot.

    Raises:
        EngineError: the engine refused it, or failed on the way.
        httpx.TransportError: the engine ended.
    """
    content = _bytes({**body, "stream": True})
    async with engine.http.stream("POST", path, content=content, headers=_JSON) as answer:
        if answer.status_code != 200:
            raise from_engine(answer.status_code, await answer.aread())
        async with aclosing(_lines(answer.aiter_raw())) as lines:
            async for line in lines:
                event = json.loads(line)
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


_JSON = {"Content-Type": "application/json"}


def _bytes(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of server-sent events; comments and the closing ``[DONE]`` are left out."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _LONGEST_EVENT:
            raise ApiError(500, "the engine's answer does not come in lines")
        for line in lines:
            if line.startswith(b"data: ") and line.strip() != b"data: [DONE]":
                yield line[6:]

"""Answers to conversations, also to those that do not fit into the context.

The engine is simply asked; only when it says that the prompt is too long, something is left out,
in Ollama's order (its ``server/routes.go``, ``llm/llama_server.go``): the oldest messages, then
(``shift``) the middle of the last one.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

from ..interfaces import Engine
from . import conversation, pieces
from .engine import render, tokenize
from .errors import ApiError, EngineError
from .pieces import Piece
from .requests import Asked, Message, Think

_IMAGE_TOKENS: Final = 768  # Ollama's guess of what a picture takes

TOO_LONG: Final = (
    "the prompt is longer than the context length currently available to the model; shorten the "
    "prompt, adjust the context length in settings, or use a model with a longer context length"
)


@dataclass(frozen=True)
class Talk:
    """A conversation to be continued; fields as of :func:`.conversation.body_of`."""

    asked: Asked
    messages: Sequence[Message]
    sampling: Mapping[str, Any]
    think: Think | None
    tools: Sequence[Mapping[str, Any]] = ()

    def body(self) -> dict[str, Any]:
        """For llama-server."""
        return conversation.body_of(
            self.asked,
            self.messages,
            sampling=self.sampling,
            think=self.think,
            tools=self.tools,
        )


async def answer(engine: Engine, talk: Talk) -> AsyncGenerator[Piece, None]:
    """The answer, shortening the conversation when the request allows it.

    Raises:
        ApiError: 400, it does not fit; or what the engine says.
    """
    try:
        async with aclosing(pieces.of_chat(engine, talk.body())) as stream:
            async for piece in stream:
                yield piece
        return
    except EngineError as error:
        if not error.too_long or error.n_ctx is None:
            raise
        limit = error.n_ctx
    if not talk.asked.truncate:
        raise ApiError(400, TOO_LONG)
    shorter = await _without_oldest(engine, talk, limit)
    if shorter is not None:
        async with aclosing(pieces.of_chat(engine, shorter.body())) as stream:
            async for piece in stream:
                yield piece
        return
    last = _from(talk, len(talk.messages) - 1)
    if talk.tools or any(m.images for m in last.messages):
        raise ApiError(400, TOO_LONG)  # cut text would not be parsed, nor a picture be found in it
    prompt = await render(engine, last.body())
    async with aclosing(of_long_prompt(engine, talk.asked, talk.sampling, prompt, limit)) as rest:
        async for piece in rest:
            yield piece


async def of_prompt(
    engine: Engine, asked: Asked, sampling: Mapping[str, Any], prompt: str
) -> AsyncGenerator[Piece, None]:
    """The continuation of a prompt, whose middle is cut out when it is too long.

    Raises:
        ApiError: as for :func:`answer`.
    """
    try:
        async with aclosing(pieces.of_prompt(engine, _body(asked, sampling, prompt))) as stream:
            async for piece in stream:
                yield piece
        return
    except EngineError as error:
        if not error.too_long or error.n_ctx is None:
            raise
        limit = error.n_ctx
    async with aclosing(of_long_prompt(engine, asked, sampling, prompt, limit)) as stream:
        async for piece in stream:
            yield piece


async def of_long_prompt(
    engine: Engine, asked: Asked, sampling: Mapping[str, Any], prompt: str, limit: int
) -> AsyncGenerator[Piece, None]:
    """The continuation of a prompt of more than ``limit`` tokens.

    Raises:
        ApiError: 400, nothing may be left out of it; or what the engine says.
    """
    if not (asked.truncate and asked.shift):
        raise ApiError(400, TOO_LONG)
    tokens = cut(await tokenize(engine, prompt, special=True), limit, sampling["n_keep"])
    async with aclosing(pieces.of_prompt(engine, _body(asked, sampling, tokens))) as stream:
        async for piece in stream:
            yield piece


def cut(tokens: Sequence[int], limit: int, keep: int) -> list[int]:
    """The first ``keep`` tokens and the last ones, so that half of the rest of the context of
    ``limit`` tokens is free; ``keep`` below 0 keeps as many as there is room for."""
    most = max(limit - 1, 0)
    keep = most if keep < 0 else min(keep, most)
    room = limit - max((limit - keep) // 2, 1)
    if len(tokens) <= room:
        return list(tokens)
    return [*tokens[:keep], *tokens[len(tokens) - (room - keep) :]]


def logprobs(asked: Asked, piece: Piece) -> list[dict[str, Any]]:
    """Probabilities as far as they were asked for."""
    if not asked.logprobs:
        return []
    found = [dict(token) for token in piece.logprobs]
    for token in found:
        others = token.pop("top_logprobs", [])
        if asked.top_logprobs and others:
            token["top_logprobs"] = others
    return found


def _body(asked: Asked, sampling: Mapping[str, Any], prompt: str | list[int]) -> dict[str, Any]:
    body = {"prompt": prompt, **sampling}
    if asked.schema is not None:
        body["json_schema"] = asked.schema
    if asked.logprobs:
        body["n_probs"] = max(asked.top_logprobs, 1)
    return body


async def _without_oldest(engine: Engine, talk: Talk, limit: int) -> Talk | None:
    """With as few as possible of the oldest messages left out; ``None``: not even the last fits.

    Fewer messages make a shorter prompt, so the number is found by halving.
    """
    low, high = 1, len(talk.messages) - 1
    best = None
    while low <= high:
        middle = (low + high) // 2
        candidate = _from(talk, middle)
        count = len(await tokenize(engine, await render(engine, candidate.body())))
        count += _IMAGE_TOKENS * sum(len(m.images) for m in candidate.messages)
        if count < limit:  # one token more has to fit
            best, high = candidate, middle - 1
        else:
            low = middle + 1
    return best


def _from(talk: Talk, index: int) -> Talk:
    """From a message on; system messages before it stay."""
    kept = [m for m in talk.messages[:index] if m.role == "system"]
    return replace(talk, messages=[*kept, *talk.messages[index:]])

"""``/api/embed`` and the older ``/api/embeddings``."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Sequence

from starlette.requests import Request
from starlette.responses import Response

from ..app import Parts
from ..interfaces import Engine
from . import requests
from .body import read_body
from .engine import call, detokenize, tokenize
from .errors import ApiError, EngineError
from .finding import find
from .options import Options
from .reply import Account, Record, Reply
from .requests import Embed

_LIMIT_WORDS = ("too large", "context size", "context length", "batch size")
_MISSING = 'model "{}" not found, try pulling it first'
_TOO_LONG = "the input length exceeds the context length"


async def handle(parts: Parts, request: Request) -> Response:
    """Vectors of length one for one text or several, in their order."""
    asked = requests.embed(await read_body(request))
    account = Account(parts.stats, asked.model, "/api/embed")
    return Reply(_records(parts, asked, account), account, _last)


async def handle_older(parts: Parts, request: Request) -> Response:
    """The vector of one text."""
    asked = requests.embeddings(await read_body(request))
    account = Account(parts.stats, asked.model, "/api/embeddings")
    return Reply(_older(_records(parts, asked, account)), account, _last)


async def _older(records: AsyncGenerator[Record, None]) -> AsyncGenerator[Record, None]:
    async for record in records:
        vectors = record["embeddings"]
        yield {"embedding": vectors[0] if vectors else []}


def _last(_: Record, more: Record) -> Record:
    return more


async def _records(parts: Parts, asked: Embed, account: Account) -> AsyncGenerator[Record, None]:
    model = await find(parts, asked.model, _MISSING)
    need = Options(model, asked.options).need(embedding=True)
    async with parts.scheduler.lease(model, need, keep_alive=asked.keep_alive) as engine:
        account.leased()
        if not asked.inputs:
            yield {"model": asked.model, "embeddings": []}
            return
        try:
            vectors, tokens = await _vectors(engine, asked.inputs)
        except EngineError as error:
            limit = await _limit(engine, error)
            if limit is None:
                raise
            if not asked.truncate:
                raise ApiError(400, _TOO_LONG) from error
            shorter = [await _cut(engine, text, limit) for text in asked.inputs]
            vectors, tokens = await _vectors(engine, shorter)
        vectors = await asyncio.to_thread(_finish, vectors, asked.dimensions)
        metrics = account.metrics({"prompt_n": tokens})
        yield {"model": asked.model, "embeddings": vectors, **metrics}


async def _vectors(engine: Engine, texts: Sequence[str]) -> tuple[list[list[float]], int]:
    said = await call(engine, "/v1/embeddings", {"input": list(texts)})
    data = sorted(said["data"], key=lambda item: int(item["index"]))
    tokens = int((said.get("usage") or {}).get("prompt_tokens", 0))
    return [item["embedding"] for item in data], tokens


async def _limit(engine: Engine, error: EngineError) -> int | None:
    """Tokens that an input may have, when that was what the engine complained of."""
    if not error.too_long and not any(word in error.text.lower() for word in _LIMIT_WORDS):
        return None
    if error.n_ctx is not None:
        return error.n_ctx
    status, said = await engine.http.ask("/props")
    props = json.loads(said) if status == 200 else {}
    n_ctx = (props.get("default_generation_settings") or {}).get("n_ctx")
    return n_ctx if isinstance(n_ctx, int) else None  # a batch of an engine for these has as many


async def _cut(engine: Engine, text: str, limit: int) -> str:
    tokens = await tokenize(engine, text)
    room = limit - 2  # the model's own first and last token
    return text if len(tokens) <= room else await detokenize(engine, tokens[:room])


def _finish(vectors: Sequence[Sequence[float]], dimensions: int) -> list[list[float]]:
    """Cut to so many dimensions and scaled to length one."""
    return [_unit(v[:dimensions] if dimensions else v) for v in vectors]


def _unit(vector: Sequence[float]) -> list[float]:
    length = math.sqrt(sum(x * x for x in vector))
    if not math.isfinite(length):
        raise ApiError(500, "the embedding contains values that are no numbers")
    scale = 1 / max(length, 1e-12)
    return [float(f"{x * scale:.9g}") for x in vector]  # all that 32 bits hold

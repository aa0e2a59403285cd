"""What needs ollama.com or its registry: refused, naming what to do instead."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..app import Parts
from ..interfaces import NoSuchModelError
from .body import read_body
from .errors import ApiError
from .reply import Account, Record, Reply
from .requests import model_name


async def pull(parts: Parts, request: Request) -> Response:
    """A model that is here has been pulled; others are not fetched.

    Clients pull before they ask, so a model that is here must answer well.
    """
    body = await read_body(request)
    name, stream = model_name(body), body.flag("stream", True)
    try:
        await asyncio.to_thread(parts.catalog.find, name)
    except NoSuchModelError:
        what = f"model '{name}' is not here, and this server does not download models"
        do = "pull it with Ollama or LM Studio, or put its GGUF file into a folder of models"
        raise ApiError(404, f"{what}: {do}; `srhpm-plugin models` lists what is here") from None
    account = Account(parts.stats, name, "/api/pull")
    return Reply(_here(), account, None if stream else _last, count=False)


async def _here() -> AsyncGenerator[Record, None]:
    yield {"status": "pulling manifest"}
    yield {"status": "success"}


def _last(_: Record, more: Record) -> Record:
    return more


async def push(parts: Parts, request: Request) -> Response:
    """Nothing is uploaded from here."""
    raise ApiError(501, "this server uploads no models: push with Ollama itself")


async def account(parts: Parts, request: Request) -> Response:
    """There are no accounts."""
    raise ApiError(501, "there are no accounts here: sign in with Ollama itself")


async def web(parts: Parts, request: Request) -> Response:
    """Services of ollama.com."""
    raise ApiError(403, "this server does not use ollama.com: web search and fetch are unavailable")


async def status(parts: Parts, request: Request) -> Response:
    """No request leaves this machine."""
    return JSONResponse({"cloud": {"disabled": True, "source": "config"}})


async def recommendations(parts: Parts, request: Request) -> Response:
    """None: these are models to pull."""
    return JSONResponse({"recommendations": []})

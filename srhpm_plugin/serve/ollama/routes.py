"""All routes of Ollama's API (its ``server/routes.go``, version 0.33)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ..._version import __version__
from ..app import Parts
from . import chat, create, embed, generate, models, refused
from .errors import as_api_error

VERSION = "0.33.0"
"""The version of Ollama whose API this is: clients ask for one that is new enough."""

_Handler = Callable[[Parts, Request], Awaitable[Response]]


def routes(parts: Parts) -> list[Route]:
    """All of them, those that are refused included."""
    table: list[tuple[str, str, _Handler]] = [
        ("GET", "/", root),
        ("GET", "/api/version", version),
        ("GET", "/api/status", refused.status),
        ("GET", "/api/tags", models.tags),
        ("GET", "/api/ps", models.ps),
        ("POST", "/api/show", models.show),
        ("POST", "/api/generate", generate.handle),
        ("POST", "/api/chat", chat.handle),
        ("POST", "/api/embed", embed.handle),
        ("POST", "/api/embeddings", embed.handle_older),
        ("POST", "/api/create", create.handle),
        ("HEAD POST", "/api/blobs/{digest}", create.blob),
        ("POST", "/api/copy", models.copy),
        ("DELETE", "/api/delete", models.delete),
        ("POST", "/api/pull", refused.pull),
        ("POST", "/api/push", refused.push),
        ("POST", "/api/me", refused.account),
        ("POST", "/api/signout", refused.account),
        ("DELETE", "/api/user/keys/{key}", refused.account),
        ("POST", "/api/experimental/web_search", refused.web),
        ("POST", "/api/experimental/web_fetch", refused.web),
        ("GET", "/api/experimental/model-recommendations", refused.recommendations),
    ]
    return [Route(path, _guarded(parts, f), methods=method.split()) for method, path, f in table]


def _guarded(parts: Parts, handler: _Handler) -> Callable[[Request], Awaitable[Response]]:
    """Errors before an answer has begun, in Ollama's form."""

    async def endpoint(request: Request) -> Response:
        try:
            return await handler(parts, request)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody is there to read it
        except Exception as error:
            return as_api_error(error).response()

    return endpoint


async def root(parts: Parts, request: Request) -> Response:
    """What clients that look for Ollama expect."""
    return PlainTextResponse("Ollama is running")


async def version(parts: Parts, request: Request) -> Response:
    """Ollama's version, and ours."""
    return JSONResponse({"version": VERSION, "srhpm": __version__})

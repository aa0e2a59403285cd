"""The web application: the guard around the routes of the API packages."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from ..errors import printable
from .guard import Guard
from .interfaces import Catalog, Scheduler, Store
from .refusals import refusal
from .settings import Settings
from .stats import Stats

# Each has a module `routes` with `routes(parts) -> list[BaseRoute]`.
_PACKAGES = ("ollama", "openai", "status")


@dataclass(frozen=True)
class Parts:
    """What routes work with.

    Attributes:
        catalog: names to models.
        scheduler: models to engines.
        store: our own models and blobs.
        settings: what the user set.
        stats: every package reports there.
        front: wraps the whole application, to hand what is not ours to another host.
        running: entered while the application runs.
    """

    catalog: Catalog
    scheduler: Scheduler
    store: Store
    settings: Settings
    stats: Stats
    front: Callable[[ASGIApp, Parts], ASGIApp] | None = None
    running: Callable[[], AbstractAsyncContextManager[object]] | None = None


def create_app(parts: Parts) -> Starlette:
    """The application over ``parts``."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as stack:
            if parts.running is not None:
                await stack.enter_async_context(parts.running())
            yield

    routes: list[BaseRoute] = []
    for package in _PACKAGES:
        name = f"{__package__}.{package}.routes"
        if find_spec(name) is not None:
            routes += import_module(name).routes(parts)
    middleware = [Middleware(Guard, settings=parts.settings)]
    if parts.front is not None:
        middleware.append(Middleware(_fronted, parts=parts))

    def fault(request: Request, error: Exception) -> Response:
        what = f"a fault of ours: {type(error).__name__}: {error}"
        parts.stats.trouble(f"{what}; see the log of srhpm-plugin serve")
        return refusal(request.url.path, 500, printable(what))

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        answer = refusal(request.url.path, error.status_code, error.detail)
        answer.headers.update(error.headers or {})
        return answer

    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={Exception: fault, HTTPException: refused},
    )


def _fronted(app: ASGIApp, parts: Parts) -> ASGIApp:
    assert parts.front is not None
    return parts.front(app, parts)

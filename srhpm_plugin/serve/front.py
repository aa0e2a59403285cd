"""In front of another host: the models that SR-HPM runs are ours, all else is the other's.

A request that names a model is read to find the name, then either our own routes get it as it
came or the other host does. Every other request passes through unread. Lists of models are the
other's, with ours added that it does not have.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import UserError
from .app import Parts
from .interfaces import Catalog, Need, NoSuchModelError, ServedModel, find
from .planning import machine_now, plan_for
from .refusals import refusal
from .settings import Settings
from .upstream import UnreachableError, Upstream

_OWN_PATHS = ("/srhpm", "/srhpm.json", "/metrics")
# Routes whose body names a model that is to speak, and those for embeddings, which gain nothing.
_SPEAK = frozenset(
    (
        "/api/chat",
        "/api/generate",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
    )
)
_EMBED = frozenset(("/api/embed", "/api/embeddings", "/v1/embeddings"))
# Routes that change or describe a model: ours when the other host has no such model.
_MANAGE = frozenset(("/api/show", "/api/delete", "/api/copy"))
# Lists, with the name of the list in each and of the names in that.
_LISTS = {"/api/tags": ("models", "name"), "/v1/models": ("data", "id"), "/api/ps": ("models", "")}
_ONE_MODEL = "/v1/models/"

_LIST_SECONDS = 5.0
_LIST_GOOD_FOR = 5.0
_PLAN_GOOD_FOR = 900.0


def in_front_of(url: str) -> Callable[[ASGIApp, Parts], ASGIApp]:
    """What :attr:`Parts.front` is set to.

    Args:
        url: of the other host.
    """
    return lambda app, parts: Front(app, parts.catalog, Upstream(url), gains(parts.settings))


def gains(settings: Settings) -> Callable[[ServedModel], bool]:
    """Whether a model gains by running on SR-HPM, as its plan says; blocking."""

    def gain(model: ServedModel) -> bool:
        try:
            plan = plan_for(model, Need(ctx=model.ctx), settings, machine_now(settings))
        except (UserError, OSError):
            return False
        return plan.kind != "stock"

    return gain


@dataclass(frozen=True)
class _Known:
    when: float
    value: Any


class Front:
    """The middleware.

    Args:
        app: our routes.
        catalog: our models.
        upstream: the other host.
        gain: whether a model that both have is ours.
    """

    def __init__(
        self,
        app: ASGIApp,
        catalog: Catalog,
        upstream: Upstream,
        gain: Callable[[ServedModel], bool],
    ) -> None:
        self._app = app
        self._catalog = catalog
        self._upstream = upstream
        self._gain = gain
        self._gains: dict[tuple[str, str], _Known] = {}
        self._theirs: _Known | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["path"] in _OWN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            await self._route(scope, receive, send)
        except HTTPException as error:  # the guard's, of a body that is too large
            await refusal(scope["path"], error.status_code, error.detail)(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path, method = scope["path"], scope["method"]
        if method == "GET" and path in _LISTS:
            await self._merged(scope, receive, send)
        elif method == "GET" and path.startswith(_ONE_MODEL):
            ours = await self._ours(path, path.removeprefix(_ONE_MODEL))
            await self._to(ours, scope, receive, send)
        elif path in _SPEAK | _EMBED | _MANAGE and method in ("POST", "DELETE"):
            body = await _read(receive)
            if body is not None:
                name = _named(body)
                ours = name is not None and await self._ours(path, name)
                await self._to(ours, scope, _again(body, receive), send)
        else:
            await self._pass(scope, receive, send)

    async def _to(self, ours: bool, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._app if ours else self._pass)(scope, receive, send)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._upstream.pass_on(scope, receive, send)
        except UnreachableError as error:
            url = self._upstream.url
            text = f"the host behind SR-HPM does not answer at {url} ({error}): is it started?"
            await refusal(scope["path"], 502, text)(scope, receive, send)

    async def _ours(self, path: str, name: str) -> bool:
        """Whether our routes answer for the model."""
        try:
            model = await find(self._catalog, name)
        except NoSuchModelError:
            return False
        theirs = await self._names()
        if not _among(model.name, theirs) and not _among(name, theirs):
            return True
        if path not in _SPEAK or model.unfit is not None:
            return False
        return await self._gain_of(model)

    async def _gain_of(self, model: ServedModel) -> bool:
        key, now = (model.name, model.digest), time.monotonic()
        known = self._gains.get(key)
        if known is None or now - known.when > _PLAN_GOOD_FOR:
            known = _Known(now, await asyncio.to_thread(self._gain, model))
            self._gains[key] = known
        return bool(known.value)

    async def _names(self) -> frozenset[str]:
        """The other host's models; what it said last where it does not answer."""
        now = time.monotonic()
        if self._theirs is None or now - self._theirs.when > _LIST_GOOD_FOR:
            names = await self._ask_names()
            if names is None:
                names = self._theirs.value if self._theirs else frozenset()
            self._theirs = _Known(now, names)
        value: frozenset[str] = self._theirs.value
        return value

    async def _ask_names(self) -> frozenset[str] | None:
        found: set[str] = set()
        answered = False
        for path in ("/api/tags", "/v1/models"):
            key, name = _LISTS[path]
            scope: Scope = {"method": "GET", "path": path, "headers": [], "query_string": b""}
            listed = _list(await self._upstream.fetch(scope, _LIST_SECONDS), key)
            if listed is not None:
                answered = True
                found.update(str(one.get(name)) for one in listed[1])
                break
        return frozenset(found) if answered else None

    async def _merged(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The other host's list and ours; what either says of a model stays as it is."""
        key, name = _LISTS[scope["path"]]
        theirs = _list(await self._upstream.fetch(scope, _LIST_SECONDS), key)
        if theirs is None:
            await self._app(scope, receive, send)
            return
        whole, listed = theirs
        ours = _list(await _answer_of(self._app, scope, receive), key)
        names = {str(one.get(name)) for one in listed} if name else set()
        more = [one for one in ours[1] if str(one.get(name)) not in names] if ours else []
        await JSONResponse({**whole, key: [*listed, *more]})(scope, receive, send)


def _list(body: bytes | None, key: str) -> tuple[Mapping[str, Any], Sequence[Any]] | None:
    """An object with a list of objects in it, and that list."""
    try:
        whole = json.loads(body) if body is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(whole, dict) or not isinstance(whole.get(key) or [], list):
        return None
    return whole, [one for one in whole.get(key) or [] if isinstance(one, dict)]


def _among(name: str, theirs: frozenset[str]) -> bool:
    return name in theirs or f"{name}:latest" in theirs


def _named(body: bytes) -> str | None:
    """The model that a request is about: ``model``, or as older clients of Ollama say, ``name``;
    ``source`` where one is copied."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    name = said.get("model") or said.get("name") or said.get("source")
    return name if isinstance(name, str) else None


async def _read(receive: Receive) -> bytes | None:
    """The whole body; ``None``: the client is gone. The guard has limited its size."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        pieces.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(pieces)


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


async def _answer_of(app: ASGIApp, scope: Scope, receive: Receive) -> bytes | None:
    """The body of our own successful answer."""
    pieces: list[bytes] = []
    status = 0

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return b"".join(pieces) if status == 200 else None

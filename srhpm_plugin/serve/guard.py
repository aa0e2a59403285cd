"""What stands before every route: who may ask, and how much.

A server on loopback can be reached by every web page that its user opens. Three things keep them
out: the name it is called by must be one that no stranger can own; a page must be of this machine
or named by the user; and what a page sends without saying whose it is must be of a kind that
browsers ask leave for first. Programs send none of the headers looked at here: ``curl -d`` works
without a content type, as Ollama's manual has it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import re
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..launch.ports import is_loopback
from .origins import Origins, own_name
from .refusals import refusal
from .settings import Settings

# What a page may send to anybody without asking (a "simple" request of the fetch standard).
_SIMPLE = ("", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
_BLOBS = "/api/blobs/"  # of any size, written to disk as they come
_PAGE = "/srhpm"  # browsers can be asked for the key there
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, -]{0,4096}")


class Guard:
    """The middleware.

    Args:
        app: what it guards.
        settings: key, origins and limits.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._key = settings.api_key
        self._origins = Origins(settings.origins)
        self._limit = settings.body_limit
        self._too_long = f"a request may have {self._limit >> 20} MiB at most"
        # Beyond loopback it may have any name, and there is a key, which no page knows.
        self._check_name = is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers, path = Headers(scope=scope), scope["path"]
        origin = headers.get("origin")
        same = origin is not None and origin.partition("://")[2] == headers.get("host")
        answer = self._refused(scope, headers, origin, same)
        if answer is not None:
            await answer(scope, receive, send)
            return
        shown = self._cors(headers) if origin is not None and not same else {}
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await Response(status_code=204, headers=shown)(scope, receive, send)
            return
        if (denied := self._denied(scope, headers)) is not None:
            denied.headers.update(shown)
            await denied(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(shown)
            await send(message)

        showing = sent if shown else send
        if path.startswith(_BLOBS):
            await self._app(scope, receive, showing)
        else:
            await self._limited(scope, receive, showing)

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stops reading a body of unstated length when it is too long. Whatever the application
        makes of that, the client learns why."""
        left, answered = self._limit, False

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._too_long)
            return message

        async def checked(message: Message) -> None:
            nonlocal answered
            if left >= 0:
                await send(message)
            elif not answered:
                answered = True
                await refusal(scope["path"], 413, self._too_long)(scope, receive, send)

        await self._app(scope, counted, checked)

    def _refused(
        self, scope: Scope, headers: Headers, origin: str | None, same: bool
    ) -> Response | None:
        """Pages and names that are not let in, and bodies that are too large."""
        path = scope["path"]
        if self._check_name and not own_name(headers.get("host", "")):
            return refusal(path, 403, "this server answers to names of this machine only")
        if origin is not None and not same and not self._origins.allow(origin):
            return refusal(path, 403, f"pages of {origin[:200]} may not ask; OLLAMA_ORIGINS may")
        kind = headers.get("content-type", "").partition(";")[0].strip().casefold()
        hidden = origin is None and headers.get("sec-fetch-site") == "cross-site"
        if scope["method"] == "POST" and hidden and kind in _SIMPLE:
            return refusal(path, 415, "pages must send application/json")
        length = headers.get("content-length", "0")
        too_long = not length.isdecimal() or int(length) > self._limit
        if too_long and not path.startswith(_BLOBS):
            return refusal(path, 413, self._too_long)
        return None

    def _denied(self, scope: Scope, headers: Headers) -> Response | None:
        """Without the key there is only the word that somebody is here, as Ollama gives it."""
        path = scope["path"]
        if self._key is None or (path == "/" and scope["method"] in ("GET", "HEAD")):
            return None
        if any(_equal(self._key, key) for key in _keys(headers)):
            return None
        answer = refusal(path, 401, "an API key is needed: Authorization: Bearer KEY")
        scheme = 'Basic realm="srhpm"' if path.startswith(_PAGE) else "Bearer"
        answer.headers["www-authenticate"] = scheme
        return answer

    def _cors(self, headers: Headers) -> Mapping[str, str]:
        """What lets an allowed page read the answer."""
        shown = {"access-control-allow-origin": headers["origin"], "vary": "Origin"}
        if "access-control-request-method" in headers:
            shown["access-control-allow-methods"] = "GET, POST, PUT, PATCH, DELETE, HEAD, OPTIONS"
            asked = headers.get("access-control-request-headers", "")
            if _NAMES.fullmatch(asked):
                shown["access-control-allow-headers"] = asked
            if headers.get("access-control-request-private-network") == "true":
                shown["access-control-allow-private-network"] = "true"
            shown["access-control-max-age"] = "600"
        return shown


def _keys(headers: Headers) -> list[str]:
    """Keys in the forms of OpenAI's, Anthropic's and browsers' requests."""
    found = [headers.get("x-api-key", "")]
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.casefold() == "bearer":
        found.append(value.strip())
    elif scheme.casefold() == "basic":
        with contextlib.suppress(binascii.Error, UnicodeDecodeError):
            found.append(base64.b64decode(value, validate=True).decode().partition(":")[2])
    return found


def _equal(key: str, given: str) -> bool:
    return hmac.compare_digest(key.encode(), given.encode("utf-8", "surrogatepass"))

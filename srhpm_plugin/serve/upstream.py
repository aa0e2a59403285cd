"""Another HTTP server, to which requests go through untouched.

Bodies pass piece by piece in both directions, whatever their size; what was compressed stays so.
Headers are kept but for those that belong to one connection (RFC 9110, 7.6.1) and ``Host``, which
names the other server: it may check it as we have checked ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

import httpx
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from ..errors import UserError

# `expect` is answered by our own server, which asks for the body as the other takes it.
_HOP_BY_HOP = frozenset(
    (
        b"connection",
        b"expect",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)
_CONNECT_S = 5.0
_BODY = (b"content-length", b"transfer-encoding")

_log = logging.getLogger("uvicorn.error")

Headers = list[tuple[bytes, bytes]]


class UnreachableError(Exception):
    """The other server does not answer; ``str()`` says how."""


def base_url(text: str) -> str:
    """The URL of a host as a user writes it: ``http://`` may be left out.

    Raises:
        UserError: it is none.
    """
    said = text if "://" in text else f"http://{text}"
    try:
        url = httpx.URL(said)
        usable = url.scheme in ("http", "https") and bool(url.host) and not url.query
    except (httpx.InvalidURL, ValueError):
        usable = False
    if not usable:
        do = "write it as http://127.0.0.1:11435"
        raise UserError(f"cannot stand in front of {text!r}", "it is no address", do)
    return said.rstrip("/")


def not_ourselves(front: str, own: str) -> None:
    """Makes sure that requests do not go round in circles.

    Raises:
        UserError: ``front`` is the address that we listen at.
    """
    theirs, ours = httpx.URL(front), httpx.URL(own)
    here = (ours.host, "localhost", "127.0.0.1", "::1", "0.0.0.0")
    if theirs.host in here and _port(theirs) == _port(ours):
        raise UserError(
            f"cannot stand in front of {front}",
            "that is where we listen",
            "start the other host on another port, e.g. OLLAMA_HOST=127.0.0.1:11435 ollama serve",
        )


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


class Upstream:
    """The other server.

    Args:
        url: its base, e.g. ``http://127.0.0.1:11435``; a path in it comes before every path.
    """

    def __init__(self, url: str) -> None:
        self.url = httpx.URL(url.rstrip("/"))
        self._http = httpx.AsyncClient(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=32),
            trust_env=False,
            follow_redirects=False,
        )

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def fetch(self, scope: Scope, seconds: float) -> bytes | None:
        """The body of a successful answer to a request without one; ``None``: there was none."""
        try:
            answer = await self._http.send(self._request(scope, None, seconds))
        except httpx.HTTPError:
            return None
        return answer.content if answer.status_code == 200 else None

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands a request to it, and its answer back.

        Raises:
            UnreachableError: it does not answer; nothing has been sent to the client.
        """
        body = _Body(receive)
        request = self._request(scope, body if _has_body(scope) else None)
        if not _has_body(scope):
            body.read.set()
        passing = asyncio.ensure_future(self._pass(request, send))
        watching = asyncio.ensure_future(body.gone())
        try:
            await asyncio.wait((passing, watching), return_when=asyncio.FIRST_COMPLETED)
            if passing.done():
                passing.result()
        finally:
            for task in (passing, watching):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, ClientDisconnect):
                    await task

    async def _pass(self, request: httpx.Request, send: Send) -> None:
        begun = False
        try:
            answer = await self._http.send(request, stream=True)
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": answer.status_code,
                        "headers": _kept(answer.headers.raw),
                    }
                )
                begun = True
                async for piece in answer.aiter_raw():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
            finally:
                await answer.aclose()
        except ClientDisconnect:
            return
        except httpx.HTTPError as error:
            if not begun:
                raise UnreachableError(str(error) or type(error).__name__) from error
            # The client sees that the answer ends early, as it did.
            _log.warning("the answer of %s ended early: %s", self.url, error)

    def _request(
        self, scope: Scope, body: _Body | None, seconds: float | None = None
    ) -> httpx.Request:
        path = scope.get("raw_path") or scope["path"].encode()
        target = self.url.raw_path.rstrip(b"/") + path
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        headers = [(k, v) for k, v in _kept(scope["headers"]) if k.lower() != b"host"]
        if body is None:
            headers = [(k, v) for k, v in headers if k.lower() != b"content-length"]
        return httpx.Request(
            scope["method"],
            self.url.copy_with(raw_path=target),
            headers=headers,
            content=body.pieces() if body is not None else None,
            extensions={"timeout": httpx.Timeout(seconds, connect=_CONNECT_S).as_dict()},
        )


class _Body:
    """A request's body as it comes, and then the news that the client is gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.read = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            piece = message.get("body", b"")
            if piece:
                yield piece
        self.read.set()

    async def gone(self) -> None:
        await self.read.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _has_body(scope: Scope) -> bool:
    return any(name.lower() in _BODY and value != b"0" for name, value in scope["headers"])


def _kept(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    headers = list(headers)
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for word in value.split(b",")
    }
    return [(k, v) for k, v in headers if k.lower() not in _HOP_BY_HOP | named]

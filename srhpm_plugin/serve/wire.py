"""HTTP/1.1 to a model's server on this machine, with as little in between as can be.

Every token of every answer passes here. A general client (httpx) took two of the five milliseconds
of processor time that an answer cost us, and half of each token's; what such a client is for,
redirects, proxies, TLS, cookies, a pool of connections, none of it is of use on loopback.

No connection is used twice: llama-server closes one after each stream without having said so, and
one that is kept open holds a thread of its until it is used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType

import httptools

_MOST_WAITING = 1 << 20  # bytes that nobody has taken yet, beyond which the server must wait


class ServerGoneError(Exception):
    """The server ended before its answer did, or is not there; ``str()`` says how."""


class Wire:
    """Asks one server.

    Args:
        host, port: where it listens.
        key: what it wants to be shown, if anything.
        why: after a connection broke, how the server ended; ``None``: it lives.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        key: str | None = None,
        why: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self._why = why
        shown = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = f"Host: {host}:{port}\r\n{shown}Connection: close\r\n"

    def asking(self, path: str, body: bytes | None = None) -> _Asking:
        """An answer as it comes: ``async with wire.asking(path, body) as answer``. Leaving it
        closes the connection, which frees the slot.

        Args:
            path: of the server's API.
            body: JSON to be posted; ``None``: a GET.

        Raises:
            ServerGoneError: there is no answer, or, while it is read, not all of it.
        """
        if body is None:
            return _Asking(self, f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode(), b"")
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        return _Asking(self, f"POST {path} HTTP/1.1\r\n{self._head}{more}\r\n".encode(), body)

    async def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Status and body of an answer. Raises what :meth:`asking` does."""
        async with self.asking(path, body) as answer:
            return answer.status, await answer.read()

    async def gone(self, error: Exception | None) -> ServerGoneError:
        """What a broken connection means."""
        why = await self._why() if self._why is not None else None
        return ServerGoneError(why or str(error or "the connection was closed"))


class Answer(asyncio.Protocol):
    """One request on its own connection, and what is answered.

    Attributes:
        status: HTTP status.
        kind: the content type, without parameters.
    """

    def __init__(self, wire: Wire, head: bytes, body: bytes) -> None:
        self.status = 0
        self.kind = ""
        self._wire = wire
        self._request = (head, body)
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._waiting = 0
        self._paused = False
        self._complete = False
        self._lost = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    # -- for who asks --------------------------------------------------------------------------

    async def begun(self) -> None:
        """Waits for status and headers."""
        while not self.status:
            await self._more()

    async def part(self) -> bytes:
        """All of the body that has come by now and was not taken yet, at least a byte; ``b""`` at
        its end."""
        while not self._parts:
            if self._complete:
                return b""
            await self._more()
        part = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._waiting = 0
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return part

    async def read(self) -> bytes:
        """The rest of the body."""
        parts = []
        while part := await self.part():
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        """Ends it; the server notices if it is not done."""
        if self._transport is not None:
            self._transport.abort()

    async def _more(self) -> None:
        if self._lost:
            raise await self._wire.gone(self._error)
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # -- for the event loop --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        self._transport = transport
        transport.writelines(part for part in self._request if part)
        self._request = (b"", b"")

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            self._lost = True
            self.close()
        if self._waiting > _MOST_WAITING and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._tell()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._lost = True
        self._error = self._error or exc
        self._tell()

    # -- for the parser ------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        if name.lower() == b"content-type":
            self.kind = value.partition(b";")[0].strip().decode("latin-1").lower()

    def on_headers_complete(self) -> None:
        """See httptools."""
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._parts.append(body)
        self._waiting += len(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._complete = True


class _Asking:
    """See :meth:`Wire.asking`."""

    def __init__(self, wire: Wire, head: bytes, body: bytes) -> None:
        self._wire = wire
        self._answer = Answer(wire, head, body)

    async def __aenter__(self) -> Answer:
        answer, wire = self._answer, self._wire
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: answer, wire.host, wire.port)
        except OSError as error:
            raise await wire.gone(error) from error
        try:
            await answer.begun()
        except BaseException:
            answer.close()
            raise
        return answer

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answer.close()

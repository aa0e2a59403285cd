"""Connections: how many there can be, how long a silent one stays, how large a head may be."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST = 2000
"""Connections at once; beyond that clients are refused with 503."""

_PATIENCE_S = 30.0
_HEAD_BYTES = 64 << 10
_FILES = 4096  # a connection of each client and one to its engine, and some


class Connection(HttpToolsProtocol):
    """One client. It has half a minute to say what it wants, to the end of its headers: else those
    who connect and stay silent, or say a byte now and then, would take all places in time. What
    comes before a body or after it has 64 KiB. Uvicorn itself knows neither limit with this parser,
    which costs half of what its other one does.
    """

    _waiting: asyncio.TimerHandle | None = None
    _in_body = False
    _dry = 0  # bytes since the last one of a body
    _told = 0  # bytes of headers, and of trailers

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        self.transport = _Joining(transport, self.loop)  # type: ignore[assignment]
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if not self._in_body and self._waiting is None:
            self._wait()
        self._dry += len(data)
        super().data_received(data)
        if self._dry > _HEAD_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    def on_message_begin(self) -> None:
        """See httptools."""
        self._told = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """See httptools."""
        self._told += len(name) + len(value)
        if self._told > _HEAD_BYTES:
            raise ValueError("the headers are too long")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._in_body = True
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """See httptools."""
        self._dry = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """See httptools."""
        self._in_body = False
        self._dry = 0
        super().on_message_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(_PATIENCE_S, self._too_late)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _too_late(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # the beginning of a further request, while one is answered
            self._wait()


class _Joining:
    """A transport that sends the head of an answer together with what follows it at once: uvicorn
    writes them one after the other, and each costs the system as much as both."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """See asyncio."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(b"HTTP/"):  # if it is a body, it is only a little late
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(data)

    def close(self) -> None:
        """See asyncio."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            data, self._head = self._head, b""
            self._transport.write(data)


def allow_many() -> None:
    """Raises the number of files that this process may have open, as far as it may: 256 on macOS
    and 1024 on most Linuxes otherwise, fewer than a full queue of clients needs."""
    if sys.platform != "win32":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))

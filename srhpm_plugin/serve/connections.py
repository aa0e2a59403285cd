"""Connections: how many there can be, and how long a silent one stays."""

from __future__ import annotations

import asyncio
import contextlib
import sys

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 2000
"""Connections at once; beyond that clients are refused with 503."""

_PATIENCE_S = 30.0
_FILES = 4096  # a connection of each client and one to its engine, and some


class Connection(H11Protocol):
    """One client. It has half a minute to say what it wants: else those who connect and stay
    silent would take all places in time.

    That it is h11 is what limits the headers' size: uvicorn's other parser, which it prefers where
    it is installed, knows no limit.
    """

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        self._waiting = self.loop.call_later(_PATIENCE_S, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def _too_late(self) -> None:
        cycle: object = self.cycle
        if cycle is None:  # no request yet
            self.transport.close()


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

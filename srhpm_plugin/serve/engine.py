"""One server process under the event loop: a thread starts it, waits, and ends it."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from ..backend import Command
from ..errors import UserError
from ..launch import Progress, Server, serve
from .wire import Wire

# How often the thread looks whether an idle server still lives. A busy one's death is seen at once,
# by the connection that breaks.
_LOOK_S = 0.5
_GRACE_S = 1.0


class _StoppedError(Exception):
    """The load was given up."""


class Process:
    """A server from its start to its end. Its methods are for the event loop's thread.

    Args:
        command: the server.
        ready_path: answers 200 when it is ready.
        start_timeout: seconds it may take to load.
        on_progress: called in the event loop while it loads.
        on_end: called in the event loop when it has ended without having been asked to, with the
            reason in one line.
    """

    def __init__(
        self,
        command: Command,
        *,
        ready_path: str,
        start_timeout: float,
        on_progress: Callable[[Progress], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._command = command
        self._ready_path = ready_path
        self._start_timeout = start_timeout
        self._on_progress = on_progress
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[Server] = self._loop.create_future()
        self._ended = asyncio.Event()
        self._stop = threading.Event()
        self._look = threading.Event()
        self._told = False
        self._server: Server | None = None
        self._http: Wire | None = None
        # Other programs of this machine shall not use it behind our back.
        self._key = secrets.token_hex(16)
        self._thread = threading.Thread(target=self._run, name="srhpm-engine", daemon=True)

    async def start(self) -> None:
        """Starts it and waits until it is ready.

        Raises:
            UserError: it did not start.
        """
        self._thread.start()
        self._server = await asyncio.shield(self._ready)
        url = urlsplit(self._server.base_url)
        assert url.hostname is not None
        assert url.port is not None
        self._http = Wire(url.hostname, url.port, key=self._key, why=self.why)

    @property
    def pid(self) -> int:
        """Its process id, once it is ready."""
        assert self._server is not None
        return self._server.pid

    @property
    def log(self) -> Path:
        """Its log, once it is ready."""
        assert self._server is not None
        return self._server.log

    @property
    def http(self) -> Wire:
        """Talks to it, once it is ready."""
        assert self._http is not None
        return self._http

    async def stop(self) -> None:
        """Ends it and waits for that."""
        self._stop.set()
        self._look.set()
        if self._thread.ident is not None:
            await self._ended.wait()

    async def why(self) -> str | None:
        """After a connection broke: how the server ended, or ``None`` if it lives."""
        server = self._server
        if server is None:
            return None
        try:
            await asyncio.to_thread(server.check, _GRACE_S)
        except UserError as error:
            # Known at once, lest who waits is sent to it, too.
            self._failed(error)
            return error.line()
        return None

    def _run(self) -> None:
        """The thread's work."""
        try:
            with serve(
                self._command,
                ready_path=self._ready_path,
                api_key=self._key,
                on_progress=self._progress,
                start_timeout=self._start_timeout,
            ) as server:
                self._call(self._is_ready, server)
                while not self._stop.is_set() and server.returncode is None:
                    self._look.wait(_LOOK_S)
                    self._look.clear()
                server.check()  # raises if it has died
        except _StoppedError:
            self._call(self._failed, UserError("the load was given up", "it was stopped"))
        except UserError as error:
            self._call(self._failed, error)
        except Exception as error:  # whatever it is, who waits must learn of it
            name = type(error).__name__
            self._call(self._failed, UserError("the server did not start", f"{name}: {error}"))
        finally:
            self._call(self._ended.set)

    def _progress(self, progress: Progress) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self._call(self._on_progress, progress)

    def _call(self, function: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    def _is_ready(self, server: Server) -> None:
        if not self._ready.done():
            self._ready.set_result(server)

    def _failed(self, error: UserError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # seen, also when nobody waits any more
        elif not (self._stop.is_set() or self._told):
            self._told = True
            self._look.set()
            self._on_end(error.line())

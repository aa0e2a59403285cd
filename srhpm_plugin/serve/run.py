"""Putting the embedded host together, and running it until it is stopped."""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType

import httpx
import uvicorn
from starlette.types import ASGIApp

from .. import home
from ..errors import UserError
from ..launch import ports
from ..plugins import plugins
from . import connections
from .app import Parts, create_app
from .catalog import ModelCatalog
from .front import in_front_of
from .scheduler import Scheduler
from .settings import Settings
from .stats import Stats
from .store import OwnStore

SERVER = "srhpm-plugin"

_NEXT_PORTS = 20
_GRACE_S = 5  # what is being answered may take this long when we are told to stop


@dataclass(frozen=True)
class Address:
    """Where we listen.

    Attributes:
        sock: bound, not yet listening.
        url: where programs of this machine reach it.
        note: what the user must know of it, in words.
    """

    sock: socket.socket
    url: str
    note: str | None = None


def listen(settings: Settings) -> Address:
    """Takes the port; when it is in use and was not asked for, the next free one.

    Raises:
        UserError: it cannot be had.
    """
    ports.check_exposure(settings.host, settings.api_key)
    wanted = settings.port
    with contextlib.suppress(OSError, ValueError):
        return _address(settings.host, wanted)
    if settings.port_asked:
        ports.require_free(settings.host, wanted)  # says why not
    for port in range(wanted + 1, wanted + 1 + _NEXT_PORTS):
        with contextlib.suppress(OSError, ValueError):
            found = _address(settings.host, port)
            who = _who(ports.base_url(settings.host, wanted))
            note = f"port {wanted} is in use{who}: listening on {port} instead"
            return replace(found, note=note)
    ports.require_free(settings.host, wanted)
    raise ports.port_in_use(wanted, ports.free_port(settings.host))


def _address(host: str, port: int) -> Address:
    sock = ports.bind(host, port)
    return Address(sock, ports.base_url(host, sock.getsockname()[1]))


def _who(url: str) -> str:
    """Who answers there, where that can be told."""
    try:
        answer = httpx.get(url, timeout=1.0, trust_env=False)
    except httpx.HTTPError:
        return ""
    if answer.headers.get("server") == SERVER:
        return " by another srhpm-plugin serve"
    return " by Ollama" if answer.text.startswith("Ollama") else ""


def assemble(settings: Settings) -> Parts:
    """The parts as they are in use.

    Raises:
        UserError: there is no server program.
    """
    backend = plugins().backend(settings.backend)
    if backend.server() is None:
        why = "the model server is not built yet"
        raise UserError("cannot serve", why, f"type: {backend.missing()}")
    stats = Stats()
    store = OwnStore()
    store.prune()
    scheduler = Scheduler(settings, stats)
    return Parts(
        catalog=ModelCatalog(store),
        scheduler=scheduler,
        store=store,
        settings=settings,
        stats=stats,
        front=in_front_of(settings.front) if settings.front else None,
        running=scheduler.running,
    )


def run(
    parts: Parts,
    address: Address,
    ready: Callable[[], None],
    stopping: Callable[[], None] = lambda: None,
) -> None:
    """Serves until a signal; returns when every model server has ended.

    Args:
        parts: see :func:`assemble`.
        address: see :func:`listen`.
        ready: called once requests are answered.
        stopping: called at the first signal.
    """
    connections.allow_many()
    with _logged(), address.sock, contextlib.suppress(KeyboardInterrupt):
        _Server(config_of(create_app(parts)), ready, stopping).run(sockets=[address.sock])


def config_of(app: ASGIApp) -> uvicorn.Config:
    """How the application is served."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        headers=[("Server", SERVER)],
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_GRACE_S,
        limit_concurrency=connections.MOST,
        http=connections.Connection,
    )


class _Server(uvicorn.Server):
    """Tells when it is ready and when it stops."""

    def __init__(
        self, config: uvicorn.Config, ready: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._ready = ready
        self._stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            number = getattr(signal, "SIGHUP", None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self.handle_exit)  # the terminal is closed
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """See uvicorn: a second signal ends what is being answered."""
        if not self.should_exit:
            self._stopping()
        super().handle_exit(sig, frame)


@contextlib.contextmanager
def _logged() -> Iterator[None]:
    """Faults go to a file of limited size, not to the user's terminal."""
    folder = home.cache_dir() / "logs"
    loggers = [logging.getLogger(name) for name in ("uvicorn", "asyncio", "srhpm_plugin")]
    handler: logging.Handler = logging.NullHandler()
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            folder / "serve.log", maxBytes=4 << 20, backupCount=1, delay=True, encoding="utf-8"
        )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        handler.close()

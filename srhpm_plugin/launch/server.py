"""Starting a server and keeping it for the length of a ``with``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from ..backend import Command
from ..errors import UserError
from . import childmode, ends, logfile, ports
from .prepare import check_command, child_env, model_files
from .signals import exit_on_signals
from .supervisor import Supervisor

_POLL_S = (0.05, 0.25)  # first and longest pause between two looks at a loading server
_PORT_TRIES = 5
_PORT_TAKEN = ("couldn't bind", "address already in use")


@dataclass(frozen=True)
class Progress:
    """How far a start has come.

    Attributes:
        stage: ``model``, ``drafter``, ``projector`` or ``warm-up``.
        fraction: of this stage, 0 to 1; ``None`` when unknown.
        elapsed: seconds since the start.
    """

    stage: str
    fraction: float | None
    elapsed: float


class Server:
    """A supervised server that is ready; made by :func:`serve`.

    Attributes:
        base_url: where clients on this machine reach it.
        log: its log file.
        api_key: what clients must send, or ``None``.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        program: str,
        base_url: str,
        log: logfile.LogFile,
        api_key: str | None,
        oom_before: int | None,
    ) -> None:
        self.base_url = base_url
        self.api_key = api_key
        self.log = log.path
        self._log = log
        self._supervisor = supervisor
        self._program = program
        self._oom_before = oom_before

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._supervisor.child.pid

    @property
    def returncode(self) -> int | None:
        """``None`` while it runs."""
        return self._supervisor.returncode

    def tail(self) -> list[str]:
        """The last lines of its log."""
        return list(self._log.tail)

    def check(self, grace: float = 0.0, what: str = "died") -> None:
        """Makes sure that it runs.

        Args:
            grace: seconds to wait for an end that has begun (a broken connection is seen first).
            what: word for the error message.

        Raises:
            UserError: it has ended; says how, with its last meaningful log line.
        """
        code = self._supervisor.wait(grace) if grace else self.returncode
        if code is None or self._supervisor.stopping:
            return
        self._supervisor.drain()
        why = ends.describe(code, self._oom_before)
        line = logfile.cause(self.tail())
        if line:
            why += f", last log line: {line}"
        raise UserError(f"{self._program} {what}", why, f"see the log {self.log}")

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for its end; the return code, or ``None`` after ``timeout`` seconds."""
        return self._supervisor.wait(timeout)

    def stop(self, timeout: float = 5.0) -> None:
        """Ends it and all it has started; kills after ``timeout`` seconds. May be repeated."""
        self._supervisor.stop(timeout)


class _PortTakenError(Exception):
    """The port was free when we looked and taken when the server did."""


@contextlib.contextmanager
def serve(
    command: Command,
    *,
    ready_path: str = "/health",
    host: str = "127.0.0.1",
    port: int | None = None,
    api_key: str | None = None,
    log: Path | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_line: Callable[[str], None] | None = None,
    start_timeout: float | None = 1800.0,
    stop_timeout: float = 5.0,
) -> Iterator[Server]:
    """Starts a server, waits until it is ready, and ends it on leaving, however one leaves.

    Args:
        command: the server without host and port.
        ready_path: answers 200 once the model is loaded.
        host: address to bind; beyond loopback only with ``api_key``.
        port: ``None`` takes a free one.
        api_key: clients must send it; handed over in the environment.
        log: the server's output; by default a new file in the cache folder, newest ten kept.
        on_progress: called about four times a second while it loads, in the caller's thread.
        on_line: called with every log line, in another thread.
        start_timeout: seconds after which a start counts as failed; ``None`` waits for ever.
        stop_timeout: seconds between asking the server to leave and killing it.

    Raises:
        UserError: program, model or port are not to be had, or the server ended.
    """
    ports.check_exposure(host, api_key)
    program = check_command(command)
    if port is not None:
        ports.require_free(host, port)
    log_path = log or logfile.default_path(program)
    with exit_on_signals(), contextlib.ExitStack() as stack:
        server: Server | None = None
        for attempt in range(_PORT_TRIES):
            chosen = port if port is not None else ports.free_port(host)
            trial = _Start(
                command,
                program=program,
                host=host,
                port=chosen,
                api_key=api_key,
                log_path=log_path,
                on_line=on_line,
            )
            stack.callback(trial.server.stop, stop_timeout)
            try:
                trial.wait_ready(ready_path, on_progress, start_timeout)
            except _PortTakenError:
                if port is not None or attempt == _PORT_TRIES - 1:
                    raise ports.port_in_use(chosen, ports.free_port(host)) from None
                continue
            server = trial.server
            break
        assert server is not None
        try:
            yield server
        except httpx.TransportError:
            # Whoever talked to it saw a broken connection; its death says more.
            server.check(grace=1.0)
            raise


class _Start:
    """A server on its way up."""

    def __init__(
        self,
        command: Command,
        *,
        program: str,
        host: str,
        port: int,
        api_key: str | None,
        log_path: Path,
        on_line: Callable[[str], None] | None,
    ) -> None:
        self._port = port
        self._files = model_files(command)
        self._begin = time.monotonic()
        try:
            log = logfile.LogFile(log_path)
        except OSError as error:
            raise UserError(
                f"cannot write the log {log_path}", error.strerror or str(error), "name another"
            ) from error
        self._supervisor = Supervisor(
            [*command.argv, "--host", host, "--port", str(port)],
            {**child_env(command, api_key), **childmode.ENV},
            log,
            on_line,
        )
        url = ports.base_url(host, port)
        self.server = Server(
            self._supervisor,
            program=program,
            base_url=url,
            log=log,
            api_key=api_key,
            oom_before=ends.oom_kills(),
        )
        try:
            self._supervisor.launch()
        except OSError as error:
            raise UserError(
                f"cannot run {command.argv[0]}", error.strerror or str(error), "check the program"
            ) from error

    def wait_ready(
        self, ready_path: str, on_progress: Callable[[Progress], None] | None, limit: float | None
    ) -> None:
        """Returns once the server answers; raises as :func:`serve` does."""
        pause = _POLL_S[0]
        with httpx.Client(trust_env=False, timeout=5.0) as http:
            while True:
                ready = self._answers(http, ready_path)
                try:
                    self.server.check(what="did not start")
                except UserError:
                    text = "\n".join(self.server.tail()).lower()
                    if any(mark in text for mark in _PORT_TAKEN):
                        raise _PortTakenError from None
                    raise
                if ready and ports.listens(self.server.pid, self._port) is not False:
                    return
                elapsed = time.monotonic() - self._begin
                if limit is not None and elapsed > limit:
                    raise UserError(
                        "the server did not start",
                        f"it was not ready after {limit:.0f} s",
                        f"see the log {self.server.log}",
                    )
                if on_progress is not None:
                    on_progress(self._progress(elapsed))
                time.sleep(pause)
                pause = min(pause * 1.3, _POLL_S[1])

    def _answers(self, http: httpx.Client, ready_path: str) -> bool:
        try:
            return http.get(self.server.base_url + ready_path).status_code == 200
        except httpx.HTTPError:
            return False

    def _progress(self, elapsed: float) -> Progress:
        """From the server's own reports, else from how much of the files is in memory."""
        state = self._supervisor.load_state
        if state is not None and state.fraction < 1.0:
            return Progress(state.stage, state.fraction, elapsed)
        stage = "model" if state is None else "warm-up"
        total = 0
        for path in self._files.values():
            with contextlib.suppress(OSError):
                total += path.stat().st_size
        try:
            resident = psutil.Process(self.server.pid).memory_info().rss
        except psutil.Error:
            resident = 0
        fraction = min(resident / total, 1.0) if total and resident else None
        return Progress(stage, fraction, elapsed)

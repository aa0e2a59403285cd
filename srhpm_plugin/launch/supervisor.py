"""One supervised server process: the thread that starts it, reads its output and outlives it."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

from . import childmode
from .childmode import LoadState
from .logfile import LogFile
from .process import Child

_LINE_BYTES = 1 << 16


class Supervisor(threading.Thread):
    """Starts the process and drains its output into the log until both have ended.

    The process is started in this thread because Linux ties its life to the thread's
    (:class:`.process.Child`).

    Args:
        argv, env: the process.
        log: gets every line that is not child-mode protocol.
        on_line: called with every such line, in this thread.
    """

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        log: LogFile,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__(name="srhpm-supervisor", daemon=True)
        self._argv = list(argv)
        self._env = env
        self._log = log
        self._on_line = on_line
        # not `_started`: Thread has an event of that name, set before the work begins
        self._child_known = threading.Event()
        self._child: Child | None = None
        self._error: OSError | None = None
        self.load_state: LoadState | None = None
        self.stopping = False

    def launch(self) -> None:
        """Starts thread and process.

        Raises:
            OSError: the program cannot be started.
        """
        self.start()
        try:
            self._child_known.wait()
        except BaseException:
            # Ctrl-C between fork and here: the process may be about to exist.
            self._child_known.wait(timeout=10)
            if self._child is not None:
                self._child.kill()
            raise
        if self._error is not None:
            raise self._error

    def run(self) -> None:
        """The thread's work."""
        try:
            self._child = Child(self._argv, self._env)
        except OSError as error:
            self._error = error
            self._log.close()
            return
        finally:
            self._child_known.set()
        while raw := self._child.output.readline(_LINE_BYTES):
            self._line(raw.decode("utf-8", "replace").rstrip("\r\n"))
        self._child.output.close()
        self._child.popen.wait()
        self._log.close()

    def _line(self, line: str) -> None:
        if childmode.is_ours(line):
            self.load_state = childmode.parse(line) or self.load_state
            return
        self._log.write(line)
        if self._on_line is not None:
            # A fault in what looks on must not stop the draining: the server would block.
            with contextlib.suppress(Exception):
                self._on_line(line)

    @property
    def child(self) -> Child:
        """The process; only after :meth:`launch`."""
        assert self._child is not None
        return self._child

    @property
    def returncode(self) -> int | None:
        """As :attr:`subprocess.Popen.returncode`, polled."""
        return self.child.popen.poll()

    def wait(self, timeout: float | None) -> int | None:
        """The return code, or ``None`` when it still runs after ``timeout`` seconds."""
        try:
            return self.child.popen.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            return None

    def drain(self, timeout: float = 2.0) -> None:
        """Waits until the last lines of an ended process are in the log."""
        self.join(timeout=timeout)

    def stop(self, timeout: float) -> None:
        """Ends the process: asks, waits ``timeout`` seconds, then kills it and its children."""
        self.stopping = True
        try:
            if self.returncode is None:
                self.child.say(childmode.EXIT_LINE)
                self.child.ask_to_stop()
                self.wait(timeout)
        finally:
            # Even when it has ended by itself: something it started may still be there.
            self.child.kill()
            self.drain()
            self.child.close()

"""A child process that never outlives us: not after an exception, a signal, nor a SIGKILL.

* POSIX: the child leads its own session, so a Ctrl-C in the terminal reaches only us, and we end
  the whole group.
* Linux: the kernel kills the child when the thread that started it is gone (PR_SET_PDEATHSIG).
* Windows: a job object that dies with our last handle.
* everywhere: the child's standard input is a pipe from us; a llama-server in child mode
  (:mod:`.childmode`) leaves at its end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from typing import IO

# Runs between fork and the server's exec, in a fresh interpreter rather than in a preexec_fn, which
# can deadlock in a program with threads. argv: our pid, then the command.
_GUARD = """\
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() != int(sys.argv[1]):
    os._exit(125)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"error: cannot run {sys.argv[2]}: {error.strerror}", flush=True)
    os._exit(127)
"""

_live: weakref.WeakSet[Child] = weakref.WeakSet()


class Child:
    """A running child. Must be created in a thread that lives at least as long as the child:
    Linux counts the death of the creating *thread* as the death of the parent.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._owner = os.getpid()
        self._job_close = _nothing
        guarded = sys.platform == "linux" and sys.executable and not getattr(sys, "frozen", False)
        if guarded:
            argv = [sys.executable, "-I", "-S", "-c", _GUARD, str(self._owner), *argv]
        flags = 0
        if sys.platform == "win32":
            flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=os.name == "posix",
            creationflags=flags,
        )
        _live.add(self)
        if sys.platform == "win32":
            from .winjob import Job

            # Without a job (a sandbox may forbid it) the pipe remains.
            with contextlib.suppress(OSError):
                job = Job()
                self._job_close = job.close
                job.add(self.popen.pid)

    @property
    def pid(self) -> int:
        """Process id; the server's own, as the guard is replaced by it."""
        return self.popen.pid

    @property
    def output(self) -> IO[bytes]:
        """Standard output and error, as one stream."""
        assert self.popen.stdout is not None
        return self.popen.stdout

    def say(self, line: bytes) -> None:
        """Writes a line to the child's standard input; nothing happens when it no longer reads."""
        with contextlib.suppress(OSError, ValueError):
            assert self.popen.stdin is not None
            self.popen.stdin.write(line)
            self.popen.stdin.flush()

    def ask_to_stop(self) -> None:
        """SIGTERM to the group; on Windows the line in child mode has to do."""
        if os.name == "posix":
            self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Ends the child and whatever it has started, at once."""
        if os.getpid() != self._owner:
            return  # a forked copy of us does not own the child
        if sys.platform == "win32":
            self.popen.kill()
            self._job_close()
        else:
            self._signal_group(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(timeout=10)

    def close(self) -> None:
        """Releases the pipe and the job after the child has ended."""
        with contextlib.suppress(OSError):
            if self.popen.stdin is not None:
                self.popen.stdin.close()
        self._job_close()
        _live.discard(self)

    def _signal_group(self, number: int) -> None:
        if sys.platform != "win32":
            # EPERM: macOS says so for a group of zombies.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.popen.pid, number)


def _nothing() -> None:
    return None


@atexit.register
def _kill_leftovers() -> None:
    for child in list(_live):
        child.kill()

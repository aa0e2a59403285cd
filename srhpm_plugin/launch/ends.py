"""How a process ended, in words."""

from __future__ import annotations

import signal
from pathlib import Path

_WINDOWS = {
    0xC0000005: "access violation",
    0xC0000017: "out of memory",
    0xC000001D: "illegal instruction",
    0xC00000FD: "stack overflow",
    0xC0000135: "a DLL is missing",
    0xC000013A: "stopped by Ctrl-C",
    0xC0000409: "aborted",
}
_MEANING = {
    "SIGABRT": "aborted",
    "SIGBUS": "bad memory access, or its file shrank or its disk is full",
    "SIGFPE": "arithmetic fault",
    "SIGILL": "illegal instruction: built for another processor",
    "SIGKILL": "killed",
    "SIGSEGV": "crashed",
    "SIGTERM": "asked to stop",
}


def oom_kills() -> int | None:
    """How often the kernel has killed a process for memory since boot; ``None`` where untold."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdecimal():
            return int(value)
    return None


def describe(returncode: int, oom_before: int | None = None) -> str:
    """Words for a return code as :mod:`subprocess` gives it (negative: a signal).

    Args:
        returncode: the code.
        oom_before: :func:`oom_kills` from when the process was started; tells the out-of-memory
            killer from any other SIGKILL.
    """
    if returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            return f"ended by signal {-returncode}"
        words = _MEANING.get(name, "ended by a signal")
        if name == "SIGKILL":
            now = oom_kills()
            if now is not None and oom_before is not None and now > oom_before:
                words = "killed by the kernel, memory ran out"
            else:
                words = "killed, by hand or because memory ran out"
        return f"{words} ({name})"
    code = returncode & 0xFFFFFFFF
    if code in _WINDOWS:
        return f"{_WINDOWS[code]} (0x{code:08X})"
    return f"exit code {returncode}"

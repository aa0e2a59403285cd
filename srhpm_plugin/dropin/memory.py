"""Free RAM at once, for a plan that is not made anew: :mod:`srhpm_plugin.machine` looks at more and
imports more. What cannot be told is ``None``, and the plan is made anew."""

from __future__ import annotations

import ctypes
import sys


def free_ram() -> int | None:
    """Bytes that a new process may take, limits of control groups included."""
    return _linux() if sys.platform == "linux" else _windows()


def _linux() -> int | None:
    from pathlib import Path

    from ..machine.cgroup import read_limits
    from ..machine.tree import Tree

    tree = Tree(Path("/"))
    kib = {}
    for line in (tree.text("proc/meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if name in ("MemTotal", "MemAvailable") and number and number[0].isdecimal():
            kib[name] = int(number[0])
    if len(kib) < 2:
        return None
    limits = read_limits(tree, kib["MemTotal"] * 1024)
    free = kib["MemAvailable"] * 1024
    return free if limits.memory_free is None else min(free, limits.memory_free)


if sys.platform == "win32":
    from ctypes import wintypes

    class _Status(ctypes.Structure):
        _fields_ = [
            ("length", wintypes.DWORD),
            ("load", wintypes.DWORD),
            ("total", ctypes.c_ulonglong),
            ("available", ctypes.c_ulonglong),
            ("rest", ctypes.c_ulonglong * 5),
        ]

    def _windows() -> int | None:
        status = _Status()
        status.length = ctypes.sizeof(status)
        done = ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status.available) if done else None
else:

    def _windows() -> int | None:
        return None

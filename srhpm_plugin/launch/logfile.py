"""The server's log: kept in a file of limited size, its last lines in memory."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import deque
from pathlib import Path

from .. import home

LIMIT = 16 << 20  # bytes, both halves together
_KEPT_LOGS = 10
_TAIL = 200  # lines


class LogFile:
    """Appends lines; when half of ``limit`` is full the file becomes ``NAME.1`` and a new one
    starts, so the newest half is always there.

    Args:
        path: the file; its folder is created.
        limit: bytes that both files together may take.
    """

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self.path = path
        self.tail: deque[str] = deque(maxlen=_TAIL)
        self._half = max(limit // 2, 1)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()
        self._size = 0

    def _open(self) -> int:
        # Verbose logs hold prompts: for the owner only.
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def write(self, line: str) -> None:
        """Adds a line, given without its end. A full disk loses lines, not the server."""
        self.tail.append(line)
        data = line.encode("utf-8", "replace") + b"\n"
        with contextlib.suppress(OSError):
            if self._size and self._size + len(data) > self._half:
                os.close(self._file)
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._file = self._open()
                self._size = 0
            os.write(self._file, data)
            self._size += len(data)

    def close(self) -> None:
        """Closes the file; the tail stays."""
        with contextlib.suppress(OSError):
            os.close(self._file)


def default_path(program: str) -> Path:
    """A new file among the logs of this user, of which the newest ten are kept."""
    folder = home.cache_dir() / "logs"
    with contextlib.suppress(OSError):
        old = sorted(folder.glob("*.log"), key=lambda p: p.stat().st_mtime)
        for path in old[: max(len(old) - _KEPT_LOGS + 1, 0)]:
            path.unlink(missing_ok=True)
            path.with_name(path.name + ".1").unlink(missing_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return folder / f"{program}-{stamp}-{os.getpid()}-{time.monotonic_ns() % 1_000_000:06d}.log"


_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\d+\.\d+\.\d+\.\d+ (?P<level>[A-Z]) +(?:\w{3,4}  +)?(?P<text>.*)$")
_BAD = re.compile(
    r"error|fatal|abort|assert|failed|exception|terminate called|what\(\)|cannot|could ?n.t"
    r"|unable|out of memory|invalid",
    re.IGNORECASE,
)
# Lines that only repeat that something above them failed.
_CONSEQUENCE = re.compile(
    r"failed to load model|exiting due to|encountered an error while|failed to create context"
    r"|failed to initialize the context|cleaning up before exit",
    re.IGNORECASE,
)


def cause(lines: list[str]) -> str:
    """The line of a log that says best why the server ended; empty for an empty log."""
    clean: list[tuple[bool, str]] = []
    for line in lines:
        text = _ANSI.sub("", line).strip()
        found = _PREFIX.match(text)
        if found:
            text = found["text"].strip()
            bad = found["level"] == "E"
        else:
            bad = bool(_BAD.search(text))
        if text:
            clean.append((bad, text))
    for wanted in (
        [t for bad, t in clean if bad and not _CONSEQUENCE.search(t)],
        [t for bad, t in clean if bad],
        [t for _, t in clean],
    ):
        if wanted:
            return wanted[-1]
    return ""

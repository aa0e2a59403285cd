"""One installation at a time, whatever host."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock
import psutil

from ..errors import UserError
from . import disk

_WAIT = 5.0


@contextmanager
def one_at_a_time(folder: Path, doing: str, wait: float = _WAIT) -> Iterator[None]:
    """Holds the lock in ``folder``, which is created. The lock of a process that died is free.

    Args:
        doing: what for, as a command line, e.g. ``install --host ollama``.

    Raises:
        UserError: another process holds it longer than ``wait`` seconds.
        OSError: there can be no lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    holder = folder / ".holder"
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=wait)
    except filelock.Timeout:
        raise UserError(
            f"cannot {doing.partition(' ')[0]}",
            f"{_who(holder)} is at it",
            f"wait until it is done, then type: srhpm-plugin {doing}",
        ) from None
    try:
        disk.own(folder / ".lock")
        # Only for the message above; a full disk must not keep from uninstalling.
        with suppress(OSError):
            holder.write_text(json.dumps({"pid": os.getpid(), "doing": doing}), "utf-8")
            disk.own(holder)
        yield
    finally:
        with suppress(OSError):
            holder.unlink(missing_ok=True)
        lock.release()


def _who(holder: Path) -> str:
    try:
        data = json.loads(holder.read_text("utf-8"))
        if psutil.pid_exists(int(data["pid"])):
            return f"process {int(data['pid'])} (srhpm-plugin {data['doing']})"
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return "another srhpm-plugin"

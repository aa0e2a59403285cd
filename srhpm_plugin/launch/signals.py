"""Signals that would end us without clean-up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn


@contextlib.contextmanager
def exit_on_signals() -> Iterator[None]:
    """Turns signals that would end us without clean-up into SystemExit, for as long as a server
    runs. Handlers that somebody else has set stay."""
    changed: list[tuple[int, signal.Handlers]] = []

    def leave(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    if threading.current_thread() is threading.main_thread():
        for name in ("SIGTERM", "SIGHUP", "SIGBREAK"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, leave)
                changed.append((number, signal.SIG_DFL))
    try:
        yield
    finally:
        for number, handler in changed:
            signal.signal(number, handler)

"""The progress of work that takes minutes, with the time left as soon as it can be told."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from ..launch.server import Progress as Loading

# One piece may have been the quick one.
_PIECES_FIRST = 2


class Pace:
    """The time left, from the time that finished pieces of equal size took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._spent = 0.0
        self._done = 0.0
        self._spent_on_done = 0.0

    def left(self, done: float, total: float, *, fresh: bool = False) -> float | None:
        """Seconds until ``total`` pieces are done; ``None`` while nobody can know.

        Args:
            done: finished pieces, never fewer than before.
            total: all pieces.
            fresh: the time since the last call was no work on the pieces (a model was loaded).
        """
        now = self._clock()
        if self._last is not None and not fresh:
            self._spent += now - self._last
        self._last = now
        if done > self._done:
            self._done, self._spent_on_done = done, self._spent
        if self._done < _PIECES_FIRST:
            return None
        each = self._spent_on_done / self._done
        return max(0.0, each * (total - done) - (self._spent - self._spent_on_done))


def time_left(seconds: float) -> str:
    """In words, no finer than is known."""
    if seconds >= 90:
        return f"about {seconds / 60:.0f} min left"
    return f"about {max(5, 5 * round(seconds / 5))} s left"


class _LeftColumn(ProgressColumn):
    """Counts down between two pieces."""

    def render(self, task: Task) -> Text:
        end = task.fields.get("end")
        return Text("" if end is None else time_left(max(0.0, end - time.monotonic())))


class Bar:
    """One progress bar on standard error; on anything but a terminal, a line for each new text.

    Use as a context manager.
    """

    def __init__(self, *, show: bool = True) -> None:
        self._console = Console(stderr=True)
        self._show = show
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = ("", False)
        if show and self._console.is_terminal:
            self._bar = Progress(
                # Names of models are no markup.
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                _LeftColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="", end=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(
        self,
        text: str,
        done: float | None = None,
        total: float | None = None,
        left: float | None = None,
    ) -> None:
        """Sets text, position and seconds left; without a position the bar only moves."""
        if self._bar is not None and self._task is not None:
            note = f"{done:.0f}/{total:.0f}" if done is not None and total and total > 1 else ""
            end = None if left is None else time.monotonic() + left
            self._bar.update(
                self._task, description=text, completed=done or 0, total=total, note=note, end=end
            )
        elif self._show and (text, left is not None) != self._last:
            # The same text again only once: when the time left is known for the first time.
            self._last = (text, left is not None)
            words = text if left is None else f"{text}, {time_left(left)}"
            print(words, file=sys.stderr, flush=True)

    def loading(self, name: str, progress: Loading) -> None:
        """A server's load progress."""
        known = progress.fraction is not None
        doing = "warming up" if progress.stage == "warm-up" else f"loading {progress.stage}"
        self.show(f"{name}: {doing}", progress.fraction, 1.0 if known else None)

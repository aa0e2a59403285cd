"""The demo's progress: one line per step, with a bar while it runs and its time when done."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_NAME_WIDTH = 12


@dataclass
class Step:
    """A step under way.

    Attributes:
        note: what to say of it when it is done.
        bar: shown while it runs; ``None`` where there is no terminal.
    """

    note: str = ""
    bar: Progress | None = None

    def at(self, text: str, fraction: float | None = None) -> None:
        """Says what is being done and how much of it is, 0 to 1."""
        if self.bar is not None and self.bar.task_ids:
            total = None if fraction is None else 1.0
            self.bar.update(
                self.bar.task_ids[0], what=escape(text), completed=fraction or 0.0, total=total
            )


@dataclass
class Steps:
    """All steps, in order.

    Attributes:
        console: where lines go.
        show: ``False`` prints nothing.
        times: seconds by step name.
    """

    console: Console
    show: bool = True
    times: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[Step]:
        """One step; its line appears when it ends well."""
        begin = time.monotonic()
        bar = self._bar(name)
        step = Step(bar=bar)
        if bar is not None:
            with bar:
                yield step
        else:
            yield step
        self.times[name] = time.monotonic() - begin
        if self.show:
            self.console.print(
                f"{name:<{_NAME_WIDTH}}{self.times[name]:6.1f} s  {step.note}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def _bar(self, name: str) -> Progress | None:
        if not self.show or not self.console.is_terminal:
            return None
        bar = Progress(
            TextColumn(f"{name:<{_NAME_WIDTH}}"),
            BarColumn(),
            TextColumn("{task.fields[what]}"),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
        )
        bar.add_task("", total=None, what="")
        return bar

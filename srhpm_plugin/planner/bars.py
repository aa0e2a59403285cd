"""A plan's memory and times as bars in the terminal: the parts of a bar in colours where there are
any, else in shades, else in letters."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..plan import MemoryUse
from .printing import can_print, plain
from .times import Time
from .units import size

PARTS = ("weights", "kv", "compute", "draft", "rollback", "projector", "cache")
"""The parts of :class:`~srhpm_plugin.plan.MemoryUse`, in the order of the bars."""

_WIDTH = 40
_LEAST_WIDTH = 6
# All of one block of Unicode, so that a font has all or none.
_SHADES, _SPARE = "█▓▒▚▞▀░", "·"
_LETTERS, _LETTERS_SPARE = "#kcdrp:", "."
_COLORS = ("blue", "yellow", "green", "magenta", "cyan", "red", "bright_black")


def memory_table(memory: Sequence[MemoryUse], out: Console) -> Table:
    """A column per device, a row per part that is used, each with the mark that it has in the
    bars of :func:`memory_bars`."""
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in memory:
        table.add_column(justify="right", overflow="fold")
    table.add_row("", *(plain(use.device) for use in memory))
    for number, part in enumerate(PARTS):
        values = [getattr(use, part) for use in memory]
        if any(values):
            title = _mark(number, 1, out)
            title.append(f" {part}", style="not bold default")
            table.add_row(title, *(size(v) if v else "-" for v in values))
    table.add_row("  total", *(size(use.total) for use in memory))
    table.add_row("  free now", *(size(use.free) for use in memory))
    return table


def memory_bars(memory: Sequence[MemoryUse], out: Console) -> Table:
    """A bar per device: all of it is what is free now, the parts fill it."""
    table = _bar_grid()
    width = _width(out, max((len(use.device) for use in memory), default=0), len(" 100% of free"))
    for use in memory:
        share = use.total / use.free if use.free else float(use.total > 0)
        whole = max(use.free, use.total, 1)
        ends, so_far = [], 0
        for part in PARTS:
            so_far += getattr(use, part)
            ends.append(so_far / whole)
        table.add_row(plain(use.device), _stacked(ends, width, out), f"{share:4.0%} of free")
    return table


def time_bars(times: Sequence[Time], out: Console) -> Table:
    """A bar per time, the longest over the whole width."""
    table = _bar_grid()
    words = [f"{t.ms:.1f} ms{f', {t.remark}' if t.remark else ''}" for t in times]
    width = _width(out, max(map(len, (t.name for t in times)), default=0), max(map(len, words)))
    longest = max(t.ms for t in times)
    for t, said in zip(times, words, strict=True):
        ends, so_far = [], 0.0
        for _, ms in t.parts or (("", t.ms),):
            so_far += ms
            ends.append(so_far / longest if longest else 0.0)
        table.add_row(t.name, _stacked(ends, width, out, rest=" "), said)
    return table


def _bar_grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def _width(out: Console, before: int, after: int) -> int:
    """Cells of a bar between texts of so many characters."""
    if not out.is_terminal:
        return _WIDTH
    return max(_LEAST_WIDTH, min(_WIDTH, out.width - before - after - 4))


def _stacked(ends: Sequence[float], width: int, out: Console, rest: str | None = None) -> Text:
    """Parts that end at these shares of the width; the rest is filled with ``rest``. A part that
    would get no cell has none: the numbers stand in the table."""
    bar = Text()
    at = 0
    for number, end in enumerate(ends):
        cells = min(width, round(end * width)) - at
        bar.append_text(_mark(number, cells, out))
        at += max(0, cells)
    empty = rest or (_SPARE if can_print(_SPARE, out) else _LETTERS_SPARE)
    return bar.append(empty * (width - at), style="dim")


def _mark(number: int, cells: int, out: Console) -> Text:
    """``cells`` of part ``number``."""
    kind = number % len(_SHADES)
    if not can_print(_SHADES + _SPARE, out):
        return Text(_LETTERS[kind] * cells)
    if out.is_terminal and out.color_system is not None:
        return Text(_SHADES[0] * cells, style=_COLORS[kind])
    return Text(_SHADES[kind] * cells)

"""``bench kernels`` for people: a table and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..bench.panels import Panel, Value, panels
from ..bench.series import Series, rows

# "x by y" is a ratio of times; "read" is the read limit; "equal" are columns to those alone.
_HEADINGS = ("M", "ms (range)", "GB/s", "by M=1", "stock ms", "by stock", "read ms", "equal")


def table(series: Sequence[Series]) -> Table:
    """One line for each type and M. What was not measured has no column."""
    lines = [_line(one, row) for one, row in zip(series, rows(series), strict=True)]
    shown = [n for n in range(len(_HEADINGS)) if any(line[n] for line in lines)]
    out = Table(box=None, pad_edge=False)
    out.add_column("weights")
    for number in shown:
        out.add_column(_HEADINGS[number], justify="right", no_wrap=True)
    last = None
    for one, line in zip(series, lines, strict=True):
        # Names of files are no markup.
        out.add_row("" if one.title == last else Text(one.title), *(line[n] for n in shown))
        last = one.title
    return out


def _line(series: Series, row: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(series.m),
        f"{_number(row['ms_median'])} ({_number(row['ms_min'])} - {_number(row['ms_max'])})",
        _number(row["gb_s"]),
        _number(row["ratio_to_m1"]),
        _number(row["stock_ms_median"]),
        _number(row["ratio_to_stock"]),
        _number(row["read_limit_ms"]),
        {None: "", True: "yes", False: "NO"}[series.bit_identical],
    )


def _number(value: float | None) -> str:
    """Three digits are more than a measurement is good for."""
    if value is None:
        return ""
    return f"{value:.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def chart(series: Sequence[Series], measured: str) -> str:
    """A panel for each type or model, as an SVG document."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one, row in zip(series, rows(series), strict=True):
        found.setdefault(one.title, []).append(row)
    return panels(
        "Milliseconds of a pass over M tokens",
        ("SR-HPM", "stock llama.cpp"),
        "merely reading the weights",
        [
            Panel(title, [_group(row) for row in taken], taken[0]["read_limit_ms"])
            for title, taken in found.items()
        ],
        measured,
    )


def _group(row: dict[str, Any]) -> tuple[str, list[Value]]:
    return str(row["m"]), [
        Value(row[f"{side}ms_median"], row[f"{side}ms_min"], row[f"{side}ms_max"])
        for side in ("", "stock_")
    ]

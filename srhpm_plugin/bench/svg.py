"""A bar chart as SVG, readable on light and dark pages, from nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH = 760  # user units; the picture scales
_LABEL = 230
_VALUE = 150
_ROW = 46
_BAR = 20
_TOP = 64
_BOTTOM = 44
_TICKS = 5

_STYLE = """\
  svg { color-scheme: light dark; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .bar { fill: #4a7fb5; }
  .whisker { stroke: #1f2328; stroke-width: 1.5; fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .bar { fill: #6ba3dc; }
    .whisker { stroke: #e6edf3; }
  }
"""


_LABEL_CHARS = 32  # about what fits left of the bars
_NOTE_CHARS = 38
_TITLE_CHARS = 84


@dataclass(frozen=True)
class Bar:
    """One bar with its spread.

    Attributes:
        label, note: two lines on its left.
        value, low, high: median and range, not negative.
        remark: what follows the value on its right.
    """

    label: str
    note: str
    value: float
    low: float
    high: float
    remark: str = ""


def _step(top: float) -> float:
    """A round distance between grid lines so that about five cover ``top``."""
    raw = top / _TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= raw)


def bars(title: str, unit: str, rows: Sequence[Bar], footer: str = "") -> str:
    """The chart as an SVG document.

    Args:
        title: heading.
        unit: of the values, below the axis.
        rows: from top to bottom.
        footer: small print, how it was measured.
    """
    height = _TOP + _ROW * len(rows) + _BOTTOM
    left, right = _LABEL, _WIDTH - _VALUE
    top_value = max((row.high for row in rows), default=0.0)
    step = _step(top_value) if top_value > 0 else 1.0
    end = step * math.ceil(top_value / step) if top_value > 0 else step

    def x(value: float) -> float:
        return round(left + (right - left) * value / end, 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-label="{_attribute(title)}">',
        f"<style>\n{_STYLE}</style>",
        f'<text class="title" x="16" y="30">{escape(_cut(title, _TITLE_CHARS))}</text>',
    ]
    floor = _TOP + _ROW * len(rows)
    for number in range(round(end / step) + 1):
        at = x(number * step)
        out.append(f'<line class="grid" x1="{at}" y1="{_TOP - 10}" x2="{at}" y2="{floor}"/>')
        out.append(
            f'<text class="small" x="{at}" y="{floor + 15}" text-anchor="middle">'
            f"{number * step:g}</text>"
        )
    for number, row in enumerate(rows):
        middle = _TOP + _ROW * number + _ROW / 2 - 4
        low, high = x(row.low), x(row.high)
        out += [
            f'<text x="{left - 10}" y="{middle - 1}" text-anchor="end">'
            f"{escape(_cut(row.label, _LABEL_CHARS))}</text>",
            f'<text class="small" x="{left - 10}" y="{middle + 13}" text-anchor="end">'
            f"{escape(_cut(row.note, _NOTE_CHARS))}</text>",
            f'<rect class="bar" x="{left}" y="{middle - _BAR / 2}" '
            f'width="{round(x(row.value) - left, 1)}" height="{_BAR}" rx="2"/>',
            f'<path class="whisker" d="M{low} {middle - 5}v10M{low} {middle}H{high}'
            f'M{high} {middle - 5}v10"/>',
            f'<text x="{right + 12}" y="{middle + 4}">{row.value:.1f} {escape(row.remark)}</text>',
        ]
    out.append(
        f'<text class="small" x="{right + 12}" y="{floor + 15}">{escape(unit)}</text>',
    )
    if footer:
        out.append(f'<text class="small" x="16" y="{height - 10}">{escape(footer)}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})

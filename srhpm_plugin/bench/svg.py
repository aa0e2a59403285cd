"""A bar chart as SVG, readable on light and dark pages, from nothing but text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .canvas import WIDTH, cut, foot, head, step

_LABEL = 230
_VALUE = 150
_ROW = 46
_BAR = 20
_TOP = 64
_BOTTOM = 44

_LABEL_CHARS = 32  # about what fits left of the bars
_NOTE_CHARS = 38


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


def bars(title: str, unit: str, rows: Sequence[Bar], footer: str = "") -> str:
    """The chart as an SVG document.

    Args:
        title: heading.
        unit: of the values, below the axis.
        rows: from top to bottom.
        footer: small print, how it was measured.
    """
    height = _TOP + _ROW * len(rows) + _BOTTOM
    left, right = _LABEL, WIDTH - _VALUE
    top_value = max((row.high for row in rows), default=0.0)
    distance = step(top_value) if top_value > 0 else 1.0
    end = distance * math.ceil(top_value / distance) if top_value > 0 else distance

    def x(value: float) -> float:
        return round(left + (right - left) * value / end, 1)

    out = head(title, height)
    floor = _TOP + _ROW * len(rows)
    for number in range(round(end / distance) + 1):
        at = x(number * distance)
        out.append(f'<line class="grid" x1="{at}" y1="{_TOP - 10}" x2="{at}" y2="{floor}"/>')
        out.append(
            f'<text class="small" x="{at}" y="{floor + 15}" text-anchor="middle">'
            f"{number * distance:g}</text>"
        )
    for number, row in enumerate(rows):
        middle = _TOP + _ROW * number + _ROW / 2 - 4
        low, high = x(row.low), x(row.high)
        out += [
            f'<text x="{left - 10}" y="{middle - 1}" text-anchor="end">'
            f"{escape(cut(row.label, _LABEL_CHARS))}</text>",
            f'<text class="small" x="{left - 10}" y="{middle + 13}" text-anchor="end">'
            f"{escape(cut(row.note, _NOTE_CHARS))}</text>",
            f'<rect class="bar" x="{left}" y="{middle - _BAR / 2}" '
            f'width="{round(x(row.value) - left, 1)}" height="{_BAR}" rx="2"/>',
            f'<path class="whisker" d="M{low} {middle - 5}v10M{low} {middle}H{high}'
            f'M{high} {middle - 5}v10"/>',
            f'<text x="{right + 12}" y="{middle + 4}">{row.value:.1f} {escape(row.remark)}</text>',
        ]
    out.append(
        f'<text class="small" x="{right + 12}" y="{floor + 15}">{escape(unit)}</text>',
    )
    return "\n".join(out + foot(footer, height))

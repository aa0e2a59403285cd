"""Small bar charts side by side, one for each weight type or model: a pass's time over M."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .canvas import WIDTH, cut, foot, head, step

_COLUMNS = 3
_MARGIN = 16
_AXIS = 36  # left of a panel's bars
_HEIGHT = 150  # of a panel's bars
_ROW = _HEIGHT + 58
_TOP = 78
_TITLE_CHARS = 30
_TICKS = 4


@dataclass(frozen=True)
class Value:
    """A bar: median and range, not negative."""

    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: above it.
        groups: label below and one value for each of the names, from left to right.
        limit: a line across, or ``None``.
    """

    title: str
    groups: Sequence[tuple[str, Sequence[Value]]]
    limit: float | None = None


def panels(
    title: str, names: tuple[str, str], limit: str, panels: Sequence[Panel], footer: str = ""
) -> str:
    """The charts as one SVG document.

    Args:
        title: heading.
        names: of the two bars of each group.
        limit: name of the line.
        panels: in reading order, each to its own scale.
        footer: small print, how it was measured.
    """
    height = _TOP + _ROW * math.ceil(len(panels) / _COLUMNS) + 26
    out = head(title, height)
    at = _MARGIN
    for mark, name in (("bar", names[0]), ("other", names[1])):
        out.append(f'<rect class="{mark}" x="{at}" y="42" width="12" height="12" rx="2"/>')
        out.append(f'<text class="small" x="{at + 18}" y="52">{escape(name)}</text>')
        at += 40 + 7 * len(name)
    if any(panel.limit is not None for panel in panels):
        out.append(f'<line class="limit" x1="{at}" y1="48" x2="{at + 22}" y2="48"/>')
        out.append(f'<text class="small" x="{at + 28}" y="52">{escape(limit)}</text>')
    width = (WIDTH - 2 * _MARGIN) / _COLUMNS
    for number, panel in enumerate(panels):
        left = _MARGIN + width * (number % _COLUMNS) + _AXIS
        out += _panel(panel, left, _TOP + _ROW * (number // _COLUMNS) + 18, width - _AXIS - 14)
    return "\n".join(out + foot(footer, height))


def _panel(panel: Panel, left: float, top: float, width: float) -> list[str]:
    highest = max((v.high for _, values in panel.groups for v in values), default=0.0)
    highest = max(highest, panel.limit or 0.0)
    distance = step(highest, _TICKS) if highest > 0 else 1.0
    end = distance * max(1, math.ceil(highest / distance))
    floor = top + _HEIGHT

    def y(value: float) -> float:
        return round(floor - _HEIGHT * value / end, 1)

    right = round(left + width, 1)
    left = round(left, 1)
    out = [f'<text x="{left}" y="{top - 10}">{escape(cut(panel.title, _TITLE_CHARS))}</text>']
    for number in range(round(end / distance) + 1):
        at = y(number * distance)
        out.append(f'<line class="grid" x1="{left}" y1="{at}" x2="{right}" y2="{at}"/>')
        out.append(
            f'<text class="small" x="{left - 5}" y="{at + 4}" text-anchor="end">'
            f"{number * distance:g}</text>"
        )
    group = width / max(1, len(panel.groups))
    for number, (label, values) in enumerate(panel.groups):
        middle = left + group * (number + 0.5)
        bar = min(16.0, group * 0.8 / max(1, len(values)))
        for place, value in enumerate(values):
            x = round(middle + bar * (place - len(values) / 2), 1)
            mark = "other" if place else "bar"
            out.append(
                f'<rect class="{mark}" x="{x}" y="{y(value.middle)}" width="{round(bar - 1, 1)}" '
                f'height="{round(floor - y(value.middle), 1)}"/>'
            )
            centre = round(x + (bar - 1) / 2, 1)
            out.append(f'<path class="whisker" d="M{centre} {y(value.low)}V{y(value.high)}"/>')
        out.append(
            f'<text class="small" x="{round(middle, 1)}" y="{floor + 15}" text-anchor="middle">'
            f"{escape(label)}</text>"
        )
    if panel.limit is not None:
        at = y(panel.limit)
        out.append(f'<line class="limit" x1="{left}" y1="{at}" x2="{right}" y2="{at}"/>')
    return out

"""Bars that are made of parts, in sections that have a scale each."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from .canvas import PARTS, WIDTH, cut, foot, head, step

_LEFT = 150
_RIGHT = 190
_ROW = 40
_BAR = 20
_TOP = 58
_HEADING = 26  # above a section's first bar
_LEGEND = 24  # more, where there is one
_AXIS = 36  # below its last
_BOTTOM = 20
_LABEL_CHARS = 22
_REMARK_CHARS = 27


@dataclass(frozen=True)
class Stack:
    """One bar.

    Attributes:
        label: on its left.
        values: of the section's parts, in their order, not negative.
        remark: on its right.
        limit: a line across it, or ``None``.
    """

    label: str
    values: Sequence[float]
    remark: str = ""
    limit: float | None = None


@dataclass(frozen=True)
class Section:
    """Bars of one scale.

    Attributes:
        heading: above them.
        unit: of the values, below.
        parts: names of the values; a part that no bar has is left out of the legend.
        rows: from top to bottom.
        limit: what the line across a bar means.
    """

    heading: str
    unit: str
    parts: Sequence[str]
    rows: Sequence[Stack]
    limit: str = ""


def stacks(title: str, sections: Sequence[Section], footer: str = "") -> str:
    """The chart as an SVG document.

    Args:
        title: heading.
        sections: from top to bottom.
        footer: small print.
    """
    heights = [_above(s) + _ROW * len(s.rows) + _AXIS for s in sections]
    height = _TOP + sum(heights) + _BOTTOM
    out = head(title, height)
    top: float = _TOP
    for section, tall in zip(sections, heights, strict=True):
        out += _section(section, top)
        top += tall
    return "\n".join(out + foot(footer, height))


def _above(section: Section) -> float:
    return _HEADING + (_LEGEND if _legend(section, 0) else 0)


def _section(section: Section, top: float) -> list[str]:
    out = [f'<text class="heading" x="16" y="{top + 6}">{escape(section.heading)}</text>']
    out += _legend(section, top + 20)
    highest = max((max(sum(r.values), r.limit or 0.0) for r in section.rows), default=0.0)
    distance = step(highest) if highest > 0 else 1.0
    end = distance * max(1, math.ceil(highest / distance))
    right = WIDTH - _RIGHT

    def x(value: float) -> float:
        return round(_LEFT + (right - _LEFT) * value / end, 1)

    first = top + _above(section)
    floor = first + _ROW * len(section.rows)
    for number in range(round(end / distance) + 1):
        at = x(number * distance)
        out.append(f'<line class="grid" x1="{at}" y1="{first - 4}" x2="{at}" y2="{floor}"/>')
        out.append(
            f'<text class="small" x="{at}" y="{floor + 15}" text-anchor="middle">'
            f"{number * distance:g}</text>"
        )
    out.append(
        f'<text class="small" x="{right + 12}" y="{floor + 15}">{escape(section.unit)}</text>'
    )
    for number, row in enumerate(section.rows):
        out += _row(row, first + _ROW * (number + 0.5), x)
    return out


def _legend(section: Section, y: float) -> list[str]:
    out: list[str] = []
    at = 16.0
    for number, name in enumerate(section.parts):
        if not name or not any(row.values[number] for row in section.rows):
            continue
        out.append(
            f'<rect class="p{number % PARTS}" x="{at}" y="{y}" width="12" height="12" rx="2"/>'
        )
        out.append(f'<text class="small" x="{at + 18}" y="{y + 10}">{escape(name)}</text>')
        at += 40 + 6 * len(name)
    if section.limit and any(row.limit is not None for row in section.rows):
        out.append(f'<line class="limit" x1="{at}" y1="{y - 1}" x2="{at}" y2="{y + 13}"/>')
        out.append(f'<text class="small" x="{at + 8}" y="{y + 10}">{escape(section.limit)}</text>')
    return out


def _row(row: Stack, middle: float, x: Callable[[float], float]) -> list[str]:
    out = [
        f'<text x="{_LEFT - 10}" y="{middle + 4}" text-anchor="end">'
        f"{escape(cut(row.label, _LABEL_CHARS))}</text>",
        f'<text x="{WIDTH - _RIGHT + 12}" y="{middle + 4}">'
        f"{escape(cut(row.remark, _REMARK_CHARS))}</text>",
    ]
    so_far = 0.0
    for number, value in enumerate(row.values):
        left, so_far = x(so_far), so_far + value
        wide = round(x(so_far) - left, 1)
        if wide > 0:
            out.append(
                f'<rect class="p{number % PARTS}" x="{left}" y="{middle - _BAR / 2}" '
                f'width="{wide}" height="{_BAR}"/>'
            )
    if row.limit is not None:
        at = x(row.limit)
        out.append(
            f'<line class="limit" x1="{at}" y1="{middle - 15}" x2="{at}" y2="{middle + 15}"/>'
        )
    return out

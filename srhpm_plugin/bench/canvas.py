"""What charts share: colours for light and dark pages, round axes, safe text."""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

WIDTH = 760  # user units; the picture scales
PARTS = 7  # colours for the parts of a bar: classes p0, p1, ...
_TICKS = 5
_TITLE_CHARS = 84

STYLE = """\
  svg { color-scheme: light dark; }
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 16px; font-weight: 600; }
  .heading { font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .grid { stroke: #d1d9e0; stroke-width: 1; }
  .bar { fill: #4a7fb5; }
  .other { fill: #b0b8c1; }
  .limit { stroke: #b35900; stroke-width: 1.5; stroke-dasharray: 5 3; }
  .whisker { stroke: #1f2328; stroke-width: 1.5; fill: none; }
  .p0 { fill: #4a7fb5; } .p1 { fill: #e0a030; } .p2 { fill: #5aa469; } .p3 { fill: #a06cc0; }
  .p4 { fill: #3aa6b0; } .p5 { fill: #c8553d; } .p6 { fill: #b0b8c1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .grid { stroke: #3d444d; }
    .bar { fill: #6ba3dc; }
    .other { fill: #656c76; }
    .limit { stroke: #f0883e; }
    .whisker { stroke: #e6edf3; }
  }
"""


def step(top: float, ticks: int = _TICKS) -> float:
    """A round distance between grid lines so that about ``ticks`` cover ``top``."""
    raw = top / ticks
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= raw)


def head(title: str, height: float) -> list[str]:
    """The first lines of a document."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'role="img" aria-label="{_attribute(title)}">',
        f"<style>\n{STYLE}</style>",
        f'<text class="title" x="16" y="30">{escape(cut(title, _TITLE_CHARS))}</text>',
    ]


def foot(text: str, height: float) -> list[str]:
    """The last lines: small print, then the end."""
    small = f'<text class="small" x="16" y="{height - 10}">{escape(text)}</text>'
    return [*([small] if text else []), "</svg>\n"]


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of ``text``."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})

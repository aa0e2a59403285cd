"""Bars as SVG: a policy that allows no styles within elements still allows attributes."""

from __future__ import annotations

from collections.abc import Sequence

from .html import Html, element

COLORS = 5
_WIDTH = 1000
_HIGH = 40


def stacked(shares: Sequence[int], others: int, total: int) -> Html:
    """One bar: what each model takes of a device, then others; the rest is free."""
    at = 0.0
    rects = []
    for i, n in enumerate((*shares, others)):
        width = min(_WIDTH * n / max(total, 1), _WIDTH - at)
        color = f"f{i % COLORS}" if i < len(shares) else "fo"
        rects.append(
            element("rect", x=f"{at:.1f}", y=0, width=f"{width:.1f}", height=10, class_=color)
        )
        at += width
    return element(
        "svg",
        *rects,
        viewBox=f"0 0 {_WIDTH} 10",
        preserveAspectRatio="none",
        class_="bar",
        role="img",
        aria_label="memory in use",
    )


def steps(shares: Sequence[float]) -> Html:
    """A bar for each share of one, side by side."""
    slot = _WIDTH / max(len(shares), 1)
    rects = []
    for i, share in enumerate(shares):
        high = max(_HIGH * min(max(share, 0.0), 1.0), 0.5)
        place = {"x": f"{(i + 0.1) * slot:.1f}", "width": f"{0.8 * slot:.1f}"}
        rects.append(element("rect", y=0, height=_HIGH, class_="ft", **place))
        rects.append(
            element("rect", y=f"{_HIGH - high:.1f}", height=f"{high:.1f}", class_="f0", **place)
        )
    return element(
        "svg",
        *rects,
        viewBox=f"0 0 {_WIDTH} {_HIGH}",
        preserveAspectRatio="none",
        class_="steps",
        role="img",
        aria_label="acceptance by position",
    )

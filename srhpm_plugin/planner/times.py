"""The times a plan's prediction comes to: what its bars show."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan import LaunchPlan


@dataclass(frozen=True)
class Time:
    """One bar.

    Attributes:
        name: of what.
        ms: milliseconds.
        remark: what follows the number.
        parts: what it is made of, name and milliseconds; empty where that is not known.
    """

    name: str
    ms: float
    remark: str = ""
    parts: tuple[tuple[str, float], ...] = ()


def times(plan: LaunchPlan) -> tuple[Time, ...]:
    """A token on the stock server and under the plan, and one pass of the plan; those that are
    known."""
    p = plan.predicted
    found = []
    if p.stock_tok_s:
        found.append(Time("a token, stock", 1000 / p.stock_tok_s))
    if p.tok_s:
        gain = f"{p.tok_s / p.stock_tok_s:.2f}x" if p.stock_tok_s else ""
        found.append(Time("a token, this plan", 1000 / p.tok_s, gain))
    if p.pass_ms:
        found.append(Time("one pass", p.pass_ms))
    return tuple(found)

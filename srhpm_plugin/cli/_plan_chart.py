"""The chart that ``plan --plot`` writes: memory per device, and times where any are known."""

from __future__ import annotations

from ..bench.canvas import cut
from ..bench.stacks import Section, Stack, stacks
from ..plan import LaunchPlan
from ..planner.bars import PARTS
from ..planner.hosted import title
from ..planner.show import draft_words
from ..planner.times import Time, times
from ..planner.units import size

_FOOTER_CHARS = 125


def plan_chart(plan: LaunchPlan) -> str:
    """As an SVG document."""
    sections = [_memory(plan)]
    found = times(plan)
    if found:
        sections.append(_times(found))
    basis = plan.predicted.source or plan.predicted.basis
    speed = f"times {basis}" if found else "speed not measured"
    footer = cut(f"context {plan.ctx}; {speed}; drafter: {draft_words(plan)}", _FOOTER_CHARS)
    return stacks(f"{title(plan.model)}: {plan.kind}", sections, footer)


def _memory(plan: LaunchPlan) -> Section:
    """Each device to its own scale: RAM would dwarf a GPU, and what matters is what is left."""
    rows = []
    for use in plan.memory:
        whole = use.free or use.total or 1
        values = [100 * getattr(use, part) / whole for part in PARTS]
        rows.append(Stack(use.device, values, f"{size(use.total)} of {size(use.free)}", 100.0))
    unit = "% of what is free now"
    return Section("Memory per device", unit, PARTS, rows, "all that is free")


def _times(found: tuple[Time, ...]) -> Section:
    names = tuple(dict.fromkeys(name for t in found for name, _ in t.parts)) or ("",)
    rows = []
    for t in found:
        parts = dict(t.parts) or {names[0]: t.ms}
        values = [parts.get(name, 0.0) for name in names]
        rows.append(Stack(t.name, values, f"{t.ms:.1f} ms{f', {t.remark}' if t.remark else ''}"))
    return Section("Time", "milliseconds", names, rows)

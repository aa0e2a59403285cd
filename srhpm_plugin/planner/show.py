"""A plan for people: sections, tables, bars."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table

from ..plan import Draft, LaunchPlan
from .bars import memory_bars, memory_table, time_bars
from .hosted import label, title
from .printing import emit, plain
from .times import times
from .units import count, size


def command_line(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What to type into the platform's shell to start the server."""
    if os.name == "nt":
        sets = "".join(f'set "{name}={value}" && ' for name, value in sorted(env.items()))
        return sets + subprocess.list2cmdline(argv)
    sets = "".join(f"{name}={shlex.quote(value)} " for name, value in sorted(env.items()))
    return sets + shlex.join(argv)


def show_plan(plan: LaunchPlan, out: Console) -> None:
    """The whole plan; the command line, which must be copied whole, comes last and unwrapped."""
    _section(out, "Model", _model_lines(plan))
    _section(out, "Plan", _plan_lines(plan))
    out.print(plain("Memory"), style="bold")
    emit(out, memory_table(plan.memory, out))
    out.print()
    emit(out, memory_bars(plan.memory, out))
    out.print()
    found = times(plan)
    if found:
        out.print(plain("Time"), style="bold")
        emit(out, time_bars(found, out))
        out.print()
    exact = plan.exact or ("not promised with these settings",)
    _section(out, "Exactness", exact)
    _section(out, "Why", plan.reasons)
    if plan.argv:
        out.print(plain("Command"), style="bold")
        out.print(plain(command_line(plan.argv, plan.env)), soft_wrap=True)


def _section(out: Console, title: str, lines: Iterable[str]) -> None:
    out.print(plain(title), style="bold")
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=1)
    grid.add_column(overflow="fold")
    for line in lines:
        grid.add_row("-", plain(line))
    emit(out, grid)
    out.print()


def _model_lines(plan: LaunchPlan) -> list[str]:
    m = plan.model
    mix = ", ".join(f"{name} {size(n)}" for name, n in list(m.quant_mix.items())[:4])
    return [
        title(m),
        str(m.path),
        f"{m.arch}, {count(m.n_params)} parameters, {size(m.nbytes)} ({mix})",
    ]


def _plan_lines(plan: LaunchPlan) -> list[str]:
    lines = [f"kind {plan.kind}, backend {plan.backend}", f"drafter: {draft_words(plan)}"]
    for place in plan.placement:
        lines.append(f"{place.device}: {', '.join(place.layers)} ({size(place.nbytes)})")
    slots = "1 slot" if plan.parallel == 1 else f"{plan.parallel} slots"
    lines.append(f"context {plan.ctx} tokens, {slots}, {plan.threads} threads")
    p = plan.predicted
    if p.tok_s is None:
        lines.append("speed: not measured")
    else:
        stock = f", stock {p.stock_tok_s:.1f}" if p.stock_tok_s is not None else ""
        source = f": {p.source}" if p.source else ""
        lines.append(f"speed: {p.tok_s:.1f} tokens/s{stock} ({p.basis}{source})")
    return lines


def draft_words(plan: LaunchPlan) -> str:
    """The drafter, or why there is none, on one line."""
    if plan.draft is None:
        return f"none ({plan.draft_off_reason})"
    return draft_name(plan.draft) + f", {plan.draft.n_min} to {plan.draft.n_max} tokens per pass"


def draft_name(draft: Draft) -> str:
    """``ngram``, ``draft-mtp`` or the drafter's name."""
    return label(draft.path) if draft.path else draft.type

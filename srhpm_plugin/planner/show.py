"""A plan for people: sections, tables, bars. Names from files are printed as they are, never as
markup or terminal commands."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..plan import Draft, LaunchPlan, MemoryUse
from .hosted import label, title
from .units import count, size

_BAR = 24
_PARTS = ("weights", "kv", "compute", "draft", "rollback", "projector", "cache")
# Wide enough that nothing wraps when the output goes to a file or another program.
_PIPE_WIDTH = 4096


def plain(text: object) -> Text:
    """``text`` literally, with control characters replaced."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)))


def console() -> Console:
    """Standard output: no markup is read in what is printed, nothing wraps into a pipe, and what
    the output's character set lacks is escaped instead of fatal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    terminal = Console().is_terminal
    return Console(
        highlight=False, markup=False, emoji=False, width=None if terminal else _PIPE_WIDTH
    )


def emit(out: Console, table: Table) -> None:
    """Prints a table, without the blanks at line ends that rich pads with."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def can_print(text: str, out: Console) -> bool:
    """The output's character set has all of ``text``."""
    try:
        text.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


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


def memory_table(memory: Sequence[MemoryUse], out: Console) -> Table:
    """A column per device, a row per part that is used, and a bar of the whole."""
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    for _ in memory:
        table.add_column(justify="right", overflow="fold")
    table.add_row("", *(plain(use.device) for use in memory))
    for part in _PARTS:
        values = [getattr(use, part) for use in memory]
        if any(values):
            table.add_row(part, *(size(v) if v else "-" for v in values))
    table.add_row("total", *(size(use.total) for use in memory))
    table.add_row("free now", *(size(use.free) for use in memory))
    table.add_row("total of free", *(_bar(use, out, len(memory)) for use in memory))
    return table


def _bar(use: MemoryUse, out: Console, devices: int) -> str:
    full, empty = ("█", "░") if can_print("█░", out) else ("#", ".")
    width = max(6, min(_BAR, (out.width - 16) // devices - 6)) if out.is_terminal else _BAR
    share = use.total / use.free if use.free else float(use.total > 0)
    filled = min(width, round(share * width))
    return full * filled + empty * (width - filled) + f" {share:4.0%}"

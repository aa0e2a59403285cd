"""``srhpm-plugin bench``."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..bench import svg
from ..bench.against import require_llama_server
from ..bench.decode import DecodeRun, Engine, Prompts, Step, fits_together, run
from ..bench.prompts import load_prompts, round_prompts
from ..plan import HostRequest, LaunchPlan
from ..planner.cost import pairs
from ._bar import Bar, Pace
from ._plot import require_writable, write
from ._running import (
    backend_option,
    command_of,
    draft_words,
    make_plan,
    make_request,
    plan_options,
    prompt_options,
    ready_path,
    without_draft,
)
from .bench_kernels import kernels
from .bench_predictions import predictions

# Fewer passes than these tokens take last hardly longer than the clock's and the scheduler's whims.
_TOKENS_LEAST = 16
_STOCK_SERVER = "SRHPM_STOCK_SERVER"  # where the stock backend looks first


@click.group("bench")
def command() -> None:
    """Measures, always against something and in pairs."""


command.add_command(kernels)
command.add_command(predictions)


@command.command("decode")
@plan_options
@backend_option
@prompt_options(128, least=2)
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Rounds; each has its own prompts where none are given.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="SERVER",
    help="The stock llama-server to measure against, instead of the one found.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Write a chart to this SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def decode(
    *,
    prompt_file: Path | None,
    tokens: int,
    rounds: int,
    against: Path | None,
    plot: Path | None,
    as_json: bool,
    **planned: Any,
) -> None:
    """Decode speed of MODEL: stock without drafter, stock with the same drafter, and the plan."""
    if against is not None:
        require_llama_server(against)
    if plot is not None:
        require_writable(plot)
    warnings = _warnings(tokens)
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    prompts: Prompts = load_prompts(prompt_file) if prompt_file else round_prompts
    engines = contenders(make_request(**planned), against)
    together = fits_together(engines)
    pace = Pace()
    with Bar(show=not as_json) as bar:

        def show(step: Step) -> None:
            left = pace.left(step.done, step.total, fresh=not step.done)
            bar.show(step.text, step.done, step.total, left)

        runs = run(engines, prompts, tokens, rounds, show, together=together)
    remember(engines, runs)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "tokens": tokens,
                    "rounds": rounds,
                    "together": together,
                    "servers": {engine.name: engine.command.argv[0] for engine in engines},
                    "warnings": warnings,
                    "runs": [result.to_json() for result in runs],
                },
                indent=2,
            )
        )
    else:
        Console().print(table(runs))
        for engine in engines:
            click.echo(f"{engine.name}: {engine.command.argv[0]}")
    if plot:
        write_plot(plot, runs, tokens, rounds)


def _warnings(tokens: int) -> list[str]:
    """Why the figures may mean less than they seem to."""
    if tokens >= _TOKENS_LEAST:
        return []
    return [
        f"{tokens} tokens per prompt are too few: speeds and ratios are noise below {_TOKENS_LEAST}"
    ]


def contenders(request: HostRequest, against: Path | None = None) -> list[Engine]:
    """Stock plain, stock with the plan's drafter, and the plan; without a drafter only the first
    and the last. Tokens are compared with the same engine's plain run.

    Args:
        request: what to plan.
        against: a stock server program to use instead of the one found.

    Raises:
        UserError: the model cannot be planned, or a server is missing.
    """
    plan = make_plan(request)
    stock = replace(request, backend="stock", relax=0.0)
    with stock_server(against):
        stock_plain = make_plan(replace(stock, draft="none"))
        engines = [engine_of("stock plain", stock_plain)]
        if plan.draft is not None:
            same = str(plan.draft.path) if plan.draft.path else request.draft
            same = "ngram" if plan.draft.type == "ngram" else same
            stock_plan = make_plan(replace(stock, draft=same))
            if stock_plan.draft is not None:
                engines.append(engine_of("stock with drafter", stock_plan))
    engines.append(engine_of(plan.backend if plan.backend != "stock" else "plan", plan))
    return engines


def remember(engines: Sequence[Engine], runs: Sequence[DecodeRun]) -> None:
    """Keeps what was accepted of each pair, for the planner."""
    for engine, result in zip(engines, runs, strict=True):
        if engine.pair is not None and result.counts is not None:
            pairs.remember(engine.pair, result.counts)


@contextlib.contextmanager
def stock_server(program: Path | None) -> Iterator[None]:
    """Names ``program`` as the stock server, for the backend to find."""
    before = os.environ.get(_STOCK_SERVER)
    if program is not None:
        os.environ[_STOCK_SERVER] = str(program)
    try:
        yield
    finally:
        if before is not None:
            os.environ[_STOCK_SERVER] = before
        elif program is not None:
            del os.environ[_STOCK_SERVER]


def engine_of(name: str, plan: LaunchPlan) -> Engine:
    """A plan as a contender."""
    from ..planner.hosted import title

    return Engine(
        name=name,
        model=title(plan.model),
        draft=draft_words(plan),
        command=command_of(plan),
        plain=command_of(without_draft(plan)) if plan.draft else None,
        memory={use.device: use.total for use in plan.memory},
        free={use.device: use.free for use in plan.memory if use.device != "CPU"},
        ready_path=ready_path(plan),
        pair=pairs.key(plan.model.path, plan.draft) if plan.draft and not plan.relax else None,
    )


def _equal(result: DecodeRun) -> str:
    if not result.outputs:
        return ""
    return f"{result.equal_outputs} of {result.outputs}"


def table(runs: list[DecodeRun]) -> Table:
    """The results for people."""
    out = Table(box=None, pad_edge=False)
    out.add_column("engine")
    out.add_column("drafter")
    for heading in ("tok/s", "min - max", "ratio", "acceptance", "outputs equal to plain"):
        out.add_column(heading, justify="right")
    for result in runs:
        data = result.to_json()
        accepted = result.acceptance
        out.add_row(
            result.engine,
            result.draft or "",
            f"{data['tok_s_median']:.1f}",
            f"{data['tok_s_min']:.1f} - {data['tok_s_max']:.1f}",
            f"{data['ratio_median']:.2f}",
            "" if accepted is None else f"{accepted:.0%}",
            _equal(result),
        )
    return out


def write_plot(path: Path, runs: list[DecodeRun], tokens: int, rounds: int) -> None:
    """The results as a chart.

    Raises:
        UserError: the file cannot be written.
    """
    rows = []
    for result in runs:
        data = result.to_json()
        rows.append(
            svg.Bar(
                label=result.engine,
                note=result.draft or "no drafter",
                value=data["tok_s_median"],
                low=data["tok_s_min"],
                high=data["tok_s_max"],
                remark=f"({data['ratio_median']:.2f}x)",
            )
        )
    text = svg.bars(
        f"Decode speed, {runs[0].model}",
        "tok/s",
        rows,
        f"Median and range of {rounds} round{'s' * (rounds != 1)}, at most {tokens} tokens per "
        "prompt; ratio: median over pairs.",
    )
    write(path, text)

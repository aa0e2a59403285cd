"""``srhpm-plugin bench predictions``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import click

from ..errors import UserError

if TYPE_CHECKING:
    from rich.table import Table

    from ..bench.prompts import Prompt
    from ..plan import LaunchPlan
    from ..planner.cost.check import Check

# Characters of English text to a token, for prompts of about the length asked for; the length that
# counts is the one that the server says.
_CHARACTERS = 4


@click.command("predictions")
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@click.option(
    "--draft",
    "drafts",
    multiple=True,
    default=("none",),
    show_default=True,
    metavar="none|ngram|PATH",
    help="A drafter; may be given several times.",
)
@click.option(
    "--context",
    "contexts",
    type=click.IntRange(64),
    multiple=True,
    default=(256,),
    show_default=True,
    help="About how many tokens are in the cache; may be given several times.",
)
@click.option(
    "--tokens", type=click.IntRange(16), default=64, show_default=True, help="Per answer."
)
@click.option("--prompts", "n_prompts", type=click.IntRange(1), default=2, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Compute threads.")
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="SERVER",
    help="The stock llama-server to measure against, instead of the one found.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def predictions(
    *,
    models: tuple[str, ...],
    drafts: tuple[str, ...],
    contexts: tuple[int, ...],
    tokens: int,
    n_prompts: int,
    rounds: int,
    threads: int | None,
    against: Path | None,
    as_json: bool,
) -> None:
    """Holds predictions against what is measured: each MODEL with each drafter at each context, in
    turn with an unpatched server.

    Needs figures of this machine (`srhpm-plugin calibrate`). Predictions are said twice: with what
    was known of a pair before, and with what was accepted in this very run, which leaves the costs
    alone to be wrong. Nothing is remembered of the pairs.
    """
    from ..bench.against import require_llama_server
    from ._bar import Bar, Pace

    if against is not None:
        require_llama_server(against)
    found: list[Check] = []
    with Bar(show=not as_json) as bar:
        pace = Pace()
        cases = [(model, context) for model in models for context in contexts]
        for number, (model, context) in enumerate(cases):
            bar.show(
                f"{model}, context {context}", number, len(cases), pace.left(number, len(cases))
            )
            plans = _plans(model, drafts, context, tokens, threads)
            prompts = texts(context, tokens, n_prompts)
            found += _measure(plans, prompts, tokens, rounds, against)
    if as_json:
        click.echo(json.dumps({"checks": [one.to_json() for one in found]}, indent=2))
    else:
        from ..planner.printing import console, emit

        emit(console(), table(found))


def _plans(
    model: str, drafts: Sequence[str], context: int, tokens: int, threads: int | None
) -> dict[str, LaunchPlan]:
    """By drafter; a drafter that would lose stays, as it is named."""
    from ..plan import HostRequest
    from ..planner import make_plan
    from ..planner.hosted import label

    ctx = -(-(2 * context + 2 * tokens) // 256) * 256  # as lengths of prompts are only about right
    plans = {}
    for draft in drafts:
        plan = make_plan(HostRequest(Path(model), draft=draft, ctx=ctx, threads=threads))
        name = (
            ""
            if draft == "none"
            else label(plan.draft.path)
            if plan.draft and plan.draft.path
            else draft
        )
        plans[name] = plan
    return plans


def texts(context: int, tokens: int, n: int) -> list[Prompt]:
    """Prompts after which there are ``context`` tokens in the cache in the middle of an answer:
    passages of the Python documentation that comes with every interpreter."""
    from pydoc_data import topics

    from ..bench.prompts import Prompt

    length = _CHARACTERS * max(16, context - tokens // 2)
    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    starts = [len(text) // (n + 1) * (i + 1) for i in range(n)]
    return [
        Prompt(f"passage {i + 1}", text[start : start + length]) for i, start in enumerate(starts)
    ]


def _measure(
    plans: dict[str, LaunchPlan],
    prompts: list[Prompt],
    tokens: int,
    rounds: int,
    against: Path | None,
) -> list[Check]:
    from dataclasses import replace

    from ..bench.decode import run
    from ..calibrate import current
    from ..machine.probe import probe
    from ..plan import HostRequest
    from ..planner import make_plan
    from ..planner.cost.check import check
    from ..planner.cost.costs import why_unknown
    from ..plugins import plugins
    from .bench import engine_of, stock_server

    machine = probe(plugins().backend("srhpm").server())
    calibration = current(machine)
    for plan in plans.values():
        why = why_unknown(plan, machine)
        if calibration is None or why:
            raise UserError("nothing is predicted", why or "no figures", "see the reason")
    assert calibration is not None
    first = next(iter(plans.values()))
    request = HostRequest(
        first.model.path, draft="none", ctx=first.ctx, threads=first.threads, backend="stock"
    )
    with stock_server(against):
        stock = engine_of("stock plain", make_plan(request))
    engines = [stock, *(engine_of(f"srhpm {name}", plan) for name, plan in plans.items())]
    engines = [replace(engine, plain=None) for engine in engines]
    base, *others = run(engines, prompts, tokens, rounds, chat=False, compare=False)
    return [
        check(
            plan,
            machine,
            calibration,
            drafter=name,
            context=result.context,
            measured=result.tok_s,
            stock=base.tok_s,
            counts=result.counts,
        )
        for (name, plan), result in zip(plans.items(), others, strict=True)
    ]


def table(found: Sequence[Check]) -> Table:
    """Measured and predicted, for people."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("model", "drafter", "context", "tok/s (min - max)", "predicted", "error"):
        out.add_column(title, justify="left" if title in ("model", "drafter") else "right")
    for title in ("with its acceptance", "error", "stock", "predicted", "error"):
        out.add_column(title, justify="right")
    for one in found:
        data = one.to_json()
        basis = f" ({one.before_basis})" if one.before_basis else ""
        out.add_row(
            one.model,
            one.drafter or "none",
            f"{one.context:.0f}",
            f"{median(one.measured):.1f} ({min(one.measured):.1f} - {max(one.measured):.1f})",
            f"{one.before:.1f}{basis}",
            _percent(data["error"]),
            f"{one.after:.1f}" if one.drafter else "",
            _percent(data["error_with_its_acceptance"]) if one.drafter else "",
            f"{median(one.stock):.1f}",
            "" if one.stock_predicted is None else f"{one.stock_predicted:.1f}",
            _percent(data["stock_error"]),
        )
    return out


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:+.0%}"

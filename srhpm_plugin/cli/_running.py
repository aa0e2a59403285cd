"""What `launch`, `verify` and `bench decode` share: options and plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from ..backend import Command
from ..errors import UserError
from ..machine.workers import parse_endpoints
from ..plan import HostRequest, KernelSetting, LaunchPlan
from ..plugins import plugins

F = TypeVar("F", bound=Callable[..., Any])


def plan_options(function: F) -> F:
    """The model and what may be said about its plan."""
    for option in reversed(
        (
            click.argument("model"),
            click.option(
                "--draft",
                default="auto",
                show_default=True,
                metavar="auto|none|ngram|PATH",
                help="The drafter.",
            ),
            click.option("--ctx", type=click.IntRange(1), help="Context per slot, tokens."),
            click.option(
                "--parallel",
                type=click.IntRange(1),
                default=1,
                show_default=True,
                help="Requests at the same time.",
            ),
            click.option("--threads", type=click.IntRange(1), help="Compute threads."),
            click.option(
                "--gpu-layers",
                type=click.IntRange(0),
                help="So many of the last layers on GPUs, or without any on RPC workers.  "
                "[default: what pays]",
            ),
            click.option(
                "--rpc",
                metavar="HOST:PORT,...",
                help="RPC workers on other machines that may hold layers.",
            ),
            click.option(
                "--relax",
                type=click.FloatRange(0),
                default=0.0,
                show_default=True,
                help="Nats a drafted token may be behind the best; 0 is exact.",
            ),
            click.option(
                "--kernels",
                type=click.Choice(["speed", "off"]),
                help="What multiplies by weights in RAM: our kernels, or with off upstream's.  "
                "[env: SRHPM_KERNELS; default: speed]",
            ),
        )
    ):
        function = option(function)
    return function


def prompt_options(tokens: int, least: int = 1) -> Callable[[F], F]:
    """What is asked and how much is to be answered: by default ``tokens``, at least ``least``."""

    def add(function: F) -> F:
        for option in (
            click.option(
                "--tokens",
                type=click.IntRange(least),
                default=tokens,
                show_default=True,
                help="Tokens per prompt.",
            ),
            click.option(
                "--prompts",
                "prompt_file",
                type=click.Path(path_type=Path),
                help="One prompt per line, or a JSON array; default: five of mixed kind.",
            ),
        ):
            function = option(function)
        return function

    return add


backend_option = click.option(
    "--backend", default="srhpm", show_default=True, help="The engine: srhpm, stock or a plugin's."
)


def make_request(
    model: str,
    *,
    draft: str,
    ctx: int | None,
    parallel: int,
    threads: int | None,
    relax: float,
    kernels: KernelSetting | None,
    backend: str,
    gpu_layers: int | None = None,
    rpc: str | None = None,
) -> HostRequest:
    """The options as a request to the planner.

    Raises:
        UserError: the model's name is empty, which as a path would be the folder one is in, or
            ``rpc`` names something that is no worker.
    """
    if not model.strip():
        raise UserError(
            f"no model {model!r}", "the name is empty", "see those known: srhpm-plugin models"
        )
    return HostRequest(
        model=Path(model),
        draft=draft,
        ctx=ctx,
        parallel=parallel,
        threads=threads,
        gpu_layers=gpu_layers,
        rpc=parse_endpoints(rpc) if rpc is not None else (),
        relax=relax,
        kernels=kernels,
        backend=backend,
    )


def make_plan(request: HostRequest, *, command: bool = True) -> LaunchPlan:
    """The plan; the planner is imported only here. Without ``command`` no server is needed."""
    from .. import planner

    return planner.make_plan(request, command=command)


def warn(plan: LaunchPlan) -> None:
    """Says on standard error where the plan is not what was asked for."""
    for warning in plan.warnings:
        click.echo(f"warning: {warning}", err=True)


def without_draft(plan: LaunchPlan) -> LaunchPlan:
    """The same plan less its drafter: what speculation must not be told from."""
    return replace(plan, draft=None, draft_off_reason="the plain run of a comparison", relax=0.0)


def command_of(plan: LaunchPlan) -> Command:
    """The command of the plan's backend.

    Raises:
        UserError: the backend has no server yet; says how to get one.
    """
    return plugins().backend(plan.backend).command(plan)


def ready_path(plan: LaunchPlan) -> str:
    """The path that answers 200 once the plan's server is ready."""
    return plugins().backend(plan.backend).ready_url("")


def draft_words(plan: LaunchPlan) -> str | None:
    """The plan's drafter for tables, or ``None``."""
    from ..planner.hosted import label

    if plan.draft is None:
        return None
    return f"{plan.draft.type} {label(plan.draft.path)}" if plan.draft.path else plan.draft.type

"""What `launch`, `verify` and `bench decode` share: options, plans and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..backend import Command
from ..errors import UserError
from ..launch.server import Progress as Loading
from ..plan import HostRequest, LaunchPlan
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
                "--relax",
                type=click.FloatRange(0),
                default=0.0,
                show_default=True,
                help="Nats a drafted token may be behind the best; 0 is exact.",
            ),
        )
    ):
        function = option(function)
    return function


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
    backend: str,
) -> HostRequest:
    """The options as a request to the planner.

    Raises:
        UserError: the model's name is empty, which as a path would be the folder one is in.
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
        relax=relax,
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
    if plan.draft is None:
        return None
    return f"{plan.draft.type} {plan.draft.path.name}" if plan.draft.path else plan.draft.type


class Bar:
    """One progress bar on standard error; on anything but a terminal, a line for each new text.

    Use as a context manager.
    """

    def __init__(self, *, show: bool = True) -> None:
        self._console = Console(stderr=True)
        self._show = show
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._last = ""
        if show and self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[note]}"),
                TimeElapsedColumn(),
                console=self._console,
                transient=True,
            )

    def __enter__(self) -> Bar:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=None, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Sets text and position; without a position the bar only moves."""
        if self._bar is not None and self._task is not None:
            note = f"{done:.0f}/{total:.0f}" if done is not None and total and total > 1 else ""
            self._bar.update(
                self._task, description=text, completed=done or 0, total=total, note=note
            )
        elif self._show and text != self._last:
            self._last = text
            print(text, file=sys.stderr, flush=True)

    def loading(self, name: str, progress: Loading) -> None:
        """A server's load progress."""
        known = progress.fraction is not None
        doing = "warming up" if progress.stage == "warm-up" else f"loading {progress.stage}"
        self.show(f"{name}: {doing}", progress.fraction, 1.0 if known else None)

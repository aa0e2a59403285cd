"""``srhpm-plugin plan``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError
from ._running import backend_option, make_request, plan_options, warn

if TYPE_CHECKING:
    from rich.console import Console

    from ..plan import LaunchPlan


@click.command(name="plan")
@plan_options
@click.option("--cache-type-k", metavar="TYPE", help="KV cache type of K, e.g. q8_0.")
@click.option("--cache-type-v", metavar="TYPE", help="KV cache type of V, e.g. q8_0.")
@backend_option
@click.option("--argv", is_flag=True, help="Print only the command line.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--plot", type=click.Path(path_type=Path), help="Write a chart to this SVG file.")
def command(
    *,
    cache_type_k: str | None,
    cache_type_v: str | None,
    argv: bool,
    as_json: bool,
    plot: Path | None,
    **planned: Any,
) -> None:
    """Shows how MODEL would be launched, and why.

    MODEL is the path of a GGUF file or the name of a known model.
    """
    if argv and as_json:
        raise click.UsageError("--argv and --json exclude each other")
    from ..planner import make_plan
    from ..plugins import plugins

    request = make_request(**planned)
    request = replace(request, cache_type_k=cache_type_k, cache_type_v=cache_type_v)
    backend = plugins().backend(request.backend)
    built = backend.server() is not None
    if argv and not built:
        raise UserError("no command line", "there is no server yet", f"type: {backend.missing()}")
    plan = make_plan(request, command=built)
    warn(plan)
    if plot is not None:
        from ._plan_chart import plan_chart
        from ._plot import write

        write(plot, plan_chart(plan))
    if as_json:
        click.echo(json.dumps(plan.to_json(), indent=2))
    elif argv:
        from ..planner.show import command_line

        click.echo(command_line(plan.argv, plan.env))
    else:
        print_plan(plan)
        if not built:
            click.echo(f"\nThere is no server yet to run it; type: {backend.missing()}")


def print_plan(plan: LaunchPlan, out: Console | None = None) -> None:
    """The plan for people, on standard output unless ``out`` says otherwise."""
    from ..planner.printing import console
    from ..planner.show import show_plan

    show_plan(plan, out or console())

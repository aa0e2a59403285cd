"""``srhpm-plugin calibrate``."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from ..calibrate import Calibration, GpuSpeed
    from ..machine.types import Machine

# What is left of a machine's own work. One busy core halves a memory's speed for the others.
_IDLE = 0.5
_SHOWN = ("Q4_K", "Q6_K", "Q8_0", "Q4_0", "IQ4_XS", "F16")


@click.command(name="calibrate")
@click.option("--force", is_flag=True, help="Measure although there are figures that hold.")
@click.option("--show", is_flag=True, help="Show what was measured last, and measure nothing.")
@click.option("--dry-run", is_flag=True, help="Say what would be run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, force: bool, show: bool, dry_run: bool, as_json: bool) -> None:
    """Measures this machine, in less than a minute, so that plans say how fast they will be.

    Memory by threads, what a byte of each weight type costs for 1 to 8 tokens with our kernels and
    with upstream's, attention by context, and what passes and the server cost besides. Kept until
    the machine, the build or its kernels change. Of each GPU: products with a few weight types,
    transfers both ways, launches, and changes between CPU and GPU.
    """
    if show and (force or dry_run):
        raise click.UsageError("--show goes without --force and --dry-run")
    from .. import calibrate
    from ..machine.probe import probe
    from ..plugins import plugins

    machine = probe(plugins().backend("srhpm").server())
    found = calibrate.load()
    why = None
    if found is not None:
        why = calibrate.stale(found, machine) or calibrate.gpus_changed(found, machine)
    if show:
        _show_last(found, why, as_json)
        return
    if dry_run:
        _dry_run(machine, as_json)
        return
    if found is None or why is not None or force:
        if why:
            click.echo(f"The last figures no longer hold: {why}.", err=True)
        found, why = _measure(machine, as_json), None
    elif not as_json:
        click.echo("These figures still hold; --force measures again.", err=True)
    _report(found, why, as_json)


def _show_last(found: Calibration | None, why: str | None, as_json: bool) -> None:
    from ..errors import UserError

    if found is None:
        raise UserError("no figures", "nothing was measured yet", "type: srhpm-plugin calibrate")
    _report(found, why, as_json)


def _dry_run(machine: Machine, as_json: bool) -> None:
    from ..calibrate.run import default_threads, outline

    lines = outline(machine, default_threads(machine))
    if as_json:
        click.echo(json.dumps({"would_run": lines}, indent=2))
        return
    for line in lines:
        click.echo(line)


def _measure(machine: Machine, quiet: bool) -> Calibration:
    from .. import calibrate
    from ..calibrate.run import calibrate as measure
    from ..home import require_usable
    from ._bar import Bar

    require_usable()
    with Bar(show=not quiet) as bar:
        found = measure(
            machine, lambda done, total, text: bar.show(text, done, total, total - done)
        )
    calibrate.save(found)
    return found


def warnings(found: Calibration, why: str | None) -> list[str]:
    """Why figures may mean less than they seem to."""
    said = []
    if why:
        said.append(f"they no longer hold: {why}; type: srhpm-plugin calibrate")
    if found.load is not None and found.load > _IDLE:
        said.append(
            f"the machine was busy (load average {found.load:.1f}): plans will be said to be "
            "slower than they are; measure on an idle one: srhpm-plugin calibrate --force"
        )
    return [*said, *found.left_out]


def _report(found: Calibration, why: str | None, as_json: bool) -> None:
    said = warnings(found, why)
    for line in said:
        click.echo(f"warning: {line}", err=True)
    if as_json:
        from ..calibrate import path

        data = {**found.to_json(), "path": str(path()), "holds": why is None, "warnings": said}
        click.echo(json.dumps(data, indent=2))
        return
    from ..planner.printing import console, emit, plain

    out = console()
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.taken))
    out.print(plain(f"{found.about['cpu']}, {found.threads} threads, {day}, {found.seconds:.0f} s"))
    out.print()
    emit(out, _reads(found))
    out.print()
    emit(out, _products(found))
    out.print()
    for line in _others(found):
        out.print(plain(line))


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    return table


def _reads(found: Calibration) -> Table:
    kinds = list(dict.fromkeys(read.pages for read in found.reads))
    table = _table("memory is read by", *(f"{kind} pages, GB/s" for kind in kinds))
    for threads in sorted({read.threads for read in found.reads}):
        by = {read.pages: read.gb_s for read in found.reads if read.threads == threads}
        name = "1 thread" if threads == 1 else f"{threads} threads"
        table.add_row(name, *(f"{by[kind]:.1f}" if kind in by else "-" for kind in kinds))
    return table


def _products(found: Calibration) -> Table:
    """The usual types; ``--json`` has all."""
    from ..calibrate.data import WIDTHS

    table = _table(
        "ns per 1000 bytes",
        *(
            f"{'ours' if e == 'ours' else 'stock'}, M={m}"
            for e in ("ours", "stock")
            for m in WIDTHS
        ),
    )
    for name in _SHOWN:
        ours, stock = found.products["ours"].get(name), found.products["stock"].get(name)
        if ours and stock:
            cells = [f"{1000 * side[m]:.1f}" for side in (ours, stock) for m in WIDTHS]
            table.add_row(name, *cells)
    return table


def _others(found: Calibration) -> list[str]:
    ours, passes = found.attention["ours"], found.passes["ours"]
    serving = found.serving
    return [
        f"attention, ns per 1000 elements: {1000 * ours.query:.2f} of each query, "
        f"{1000 * ours.cell:.2f} of the cache",
        f"a pass over one token: {passes.fixed[1]:.3f} ms and {1000 * passes.layer[1]:.1f} us a "
        f"layer; a new graph {1000 * passes.build:.1f} us a layer",
        f"the server: {serving.step:.3f} ms a step, {serving.sample:.4f} ms a token for each 1000 "
        f"of the vocabulary, {serving.draft:.4f} ms a drafted one",
        *(_gpu(name, speed) for name, speed in (found.gpus or {}).items()),
    ]


def _gpu(name: str, speed: GpuSpeed) -> str:
    parts = [
        f"{kind} {1 / table[1]:.0f} GB/s at M=1, {speed.gflop_s[kind]:.0f} GFLOP/s at M=512"
        for kind, table in speed.products.items()
        if table[1]
    ]
    if speed.up_bytes_s is not None and speed.down_bytes_s is not None:
        parts.append(
            f"{speed.up_bytes_s / 1e9:.1f} GB/s to it, {speed.down_bytes_s / 1e9:.1f} GB/s from it"
        )
    parts.append(f"a launch {speed.launch_ms:.3f} ms")
    if speed.crossing_ms is not None:
        parts.append(f"a change between CPU and GPU {speed.crossing_ms:.3f} ms")
    return f"{name} ({speed.description}): {'; '.join(parts)}"

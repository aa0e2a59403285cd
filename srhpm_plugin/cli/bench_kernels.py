"""``srhpm-plugin bench kernels``."""

from __future__ import annotations

import json
from pathlib import Path

import click
import psutil
from rich.console import Console

from ..bench import kernels as program
from ..bench import passes
from ..bench.against import require_llama_bench
from ..bench.kernels import Wanted
from ..bench.series import Series
from ..bench.series import rows as figures
from ..errors import UserError
from ..home import require_usable
from ..machine.probe import probe
from ..machine.types import Machine
from ..model import ModelInfo
from ..native.locate import build_info, find_program
from ..plan import HostRequest
from ..plugins import plugins
from ._bar import Bar, Pace
from ._kernel_report import chart, table
from ._plot import require_writable, write

# What is left of a machine's own work. One busy core halves a memory's speed for the others.
_IDLE = 0.5
_M_MOST = 512
_SIZE = 4096


def _numbers(_ctx: click.Context, _param: click.Parameter, text: str) -> tuple[int, ...]:
    """``1,2,4``: each M once, in the order given."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= _M_MOST for word in words):
        raise click.BadParameter(f"{text!r} is no list of numbers from 1 to {_M_MOST}")
    return tuple(dict.fromkeys(map(int, words)))


def _once(types: str) -> tuple[str, ...]:
    """Each type once; the program says which there are."""
    return tuple(dict.fromkeys(word.strip().upper() for word in types.split(",")))


@click.command("kernels")
@click.argument("models", metavar="[MODEL]...", nargs=-1)
@click.option(
    "--types", metavar="TYPE,TYPE,...", help="Weight types; default: all that have kernels."
)
@click.option(
    "--m",
    "ms",
    callback=_numbers,
    metavar="M,M,...",
    default="1,2,3,4,6,8",
    show_default=True,
    help="Tokens per pass.",
)
@click.option("--rows", type=click.IntRange(1), help="Of the matrices.  [default: 4096]")
@click.option("--cols", type=click.IntRange(1), help="Of the matrices.  [default: 4096]")
@click.option(
    "--mib",
    type=click.IntRange(1),
    help="Weights per pass, MiB; default: several times what the caches hold.",
)
@click.option("--threads", type=click.IntRange(1), help="Default: as a plan has.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Rounds; all take turns in each.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="LLAMA_BENCH",
    help="The llama-bench to measure MODEL against; default: our build with SRHPM_KERNELS=off.",
)
@click.option("--plot", type=click.Path(path_type=Path), help="Write charts to this SVG file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def kernels(
    *,
    models: tuple[str, ...],
    types: str | None,
    ms: tuple[int, ...],
    rows: int | None,
    cols: int | None,
    mib: int | None,
    threads: int | None,
    rounds: int,
    against: Path | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """What a pass over M tokens costs: our kernels and upstream's, in turn.

    Without MODEL, products of one matrix of each weight type, what merely reading its bytes takes
    (the read limit), and whether each token gets the bits it has alone. With MODEL, whole passes on
    the CPU.
    """
    if models and (types or rows or cols or mib):
        raise click.UsageError("--types, --rows, --cols and --mib go without MODEL")
    if against is not None and not models:
        raise click.UsageError("--against needs a MODEL")
    if against is not None:
        require_llama_bench(against)
    if plot is not None:
        require_writable(plot)
    bench = _program("llama-bench") if models else None
    single = _program("bench-kernels")
    infos = [_header(model) for model in models]
    machine = probe()
    threads = threads or _threads(machine)
    warnings = _warnings()
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    pace = Pace()
    with Bar(show=not as_json) as bar:

        def tell(done: int, total: int, text: str) -> None:
            bar.show(text, done, total, pace.left(done, total, fresh=not done))

        if bench is None:
            wanted = Wanted(
                types=_once(types) if types else (),
                ms=ms,
                rows=rows or _SIZE,
                cols=cols or _SIZE,
                mib=mib,
                threads=threads,
                rounds=rounds,
            )
            series = program.measure(single, wanted, tell)
        else:
            ours, stock = passes.Bench(bench, "speed"), passes.Bench(against or bench, "off")
            isa = program.instruction_set(single)
            series = passes.measure(infos, ours, stock, ms, threads, rounds, isa, tell)
    if as_json:
        report = {
            "machine": machine.to_json() | {"load_average": load()},
            "build": _build(bench or single),
            "threads": threads,
            "rounds": rounds,
            "warnings": warnings,
            "rows": figures(series),
        }
        click.echo(json.dumps(report, indent=2))
    else:
        Console().print(table(series))
        click.echo(_measured(machine, series, threads, rounds))
    if plot:
        write(plot, chart(series, _measured(machine, series, threads, rounds)))


def _program(name: str) -> Path:
    """A built program.

    Raises:
        UserError: there is none.
    """
    found = find_program(name)
    if found is None:
        require_usable()
        raise UserError(
            f"no program {name}",
            "it is neither built nor installed",
            "type: srhpm-plugin native build",
        )
    return found


def _header(model: str) -> ModelInfo:
    from ..planner.headers import read_header
    from ..planner.names import find_model

    return read_header(find_model(model))


def _threads(machine: Machine) -> int:
    """What the planner's step says, a plugin's included."""
    threads, _ = plugins().hook.srhpm_plan_threads(
        request=HostRequest(model=Path()), machine=machine
    )
    return int(threads)


def load() -> float:
    """Processes that want to run, on average over the last minute."""
    return float(psutil.getloadavg()[0])


def _warnings() -> list[str]:
    """Why the figures may mean less than they seem to."""
    now = load()
    if now <= _IDLE:
        return []
    return [f"this machine is busy (load average {now:.1f}): measure on an idle one"]


def _build(program: Path) -> dict[str, object]:
    """What was measured. Beside a program that the user named there may be nothing to read."""
    info = build_info(program.parent.parent)
    return {name: value for name, value in info.items() if name != "hooks"} | {
        "program": str(program)
    }


def _measured(machine: Machine, series: list[Series], threads: int, rounds: int) -> str:
    """How it was measured, on one line."""
    one = series[0]
    of = f", matrices {one.rows} x {one.cols}" if one.rows else ""
    return (
        f"{machine.cpu.name}, {one.isa}, {threads} thread{'s' * (threads != 1)}; "
        f"median and range of {rounds} round{'s' * (rounds != 1)} in turn{of}."
    )

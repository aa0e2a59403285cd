"""The whole calibration: what is run, in which order, within a minute."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from ..errors import UserError
from ..machine.types import Machine
from ..native.locate import find_program
from ..plan import HostRequest, LaunchPlan
from ..plugins import plugins
from . import gpus as gpus_of
from . import passes as passes_of
from . import products as products_of
from . import serving as serving_of
from . import shapes
from .data import ENGINES, WIDTHS, Calibration, EngineName, GpuSpeed
from .passes import Bench, Samples
from .store import facts, gpu_facts

# Passes take a few seconds each time; products get what is left of the minute.
SECONDS = 56.0
_LAST_ROUND = 6.0
_CTX = 4096

OnStep = Callable[[float, float, str], None]
"""Told before each piece of work: seconds' worth of work done, of all, and what comes."""


@dataclass(frozen=True)
class Programs:
    """The built programs that are run; the last only beside a GPU, and older builds have none."""

    kernels: Path
    bench: Path
    server: Path
    gpu: Path | None


def programs() -> Programs:
    """Finds them.

    Raises:
        UserError: one is missing.
    """
    found = [find_program(name) for name in ("bench-kernels", "llama-bench", "llama-server")]
    kernels, bench, server = found
    if kernels is None or bench is None or server is None:
        raise UserError(
            "cannot calibrate",
            "there is no server of ours, or it was built without what measures it",
            "type: srhpm-plugin native build",
        )
    return Programs(kernels, bench, server, find_program("bench-gpu"))


def default_threads(machine: Machine) -> int:
    """Those of a plan that nobody gave a number of threads."""
    threads, _ = plugins().hook.srhpm_plan_threads(
        request=HostRequest(model=Path()), machine=machine
    )
    return int(threads)


def outline(machine: Machine, threads: int) -> list[str]:
    """What :func:`calibrate` would run, a line each."""
    found = programs()
    widths = ", ".join(map(str, WIDTHS))
    here = [gpu.name for gpu in machine.gpus if not gpu.link]
    gpus = [
        f"{found.gpu}: {', '.join(here)}: launches, changes of side, transfers, products with a "
        "few weight types"
    ]
    return [
        f"{found.kernels}: how fast memory is read by 1 to {threads} threads, huge pages and small",
        f"{found.bench}: passes over {widths} tokens of models of {shapes.SHALLOW.layers} and "
        f"{shapes.DEEP.layers} narrow layers, with our kernels and with upstream's",
        f"{found.bench}: the same after {shapes.LOOKER_CTX} tokens, for attention",
        f"{found.server}: a small model on 127.0.0.1, plain and with itself as drafter",
        *(gpus if here and found.gpu else []),
        f"{found.kernels}: products with {len(products_of.TYPES) + len(products_of.FLOATS)} weight "
        f"types for {widths} tokens, ours and upstream's, as many as the time allows",
        f"{threads} threads, {SECONDS:.0f} s, models of random weights in a temporary folder",
    ]


def calibrate(
    machine: Machine,
    on_step: OnStep | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Calibration:
    """Measures this machine.

    Raises:
        UserError: a program is missing or failed, or the machine is too busy.
    """
    tell = on_step or (lambda _done, _all, _text: None)
    begin, taken = clock(), time.time()
    load = float(psutil.getloadavg()[0])
    found, threads = programs(), default_threads(machine)

    def say(text: str) -> None:
        tell(min(clock() - begin, SECONDS), SECONDS, text)

    say("memory")
    reads = products_of.reads(found.kernels, threads)
    with tempfile.TemporaryDirectory(prefix="srhpm-calibrate-") as folder, _alone():
        say("small models")
        files = {
            shape: shapes.write(shape, Path(folder))
            for shape in (shapes.SHALLOW, shapes.DEEP, shapes.LOOKER, shapes.TALKER)
        }

        def plan(path: Path, backend: str = "srhpm") -> LaunchPlan:
            from ..planner import make_plan

            request = HostRequest(
                path, draft="none", ctx=_CTX, threads=threads, backend=backend, gpu_layers=0
            )
            bare = replace(machine, gpus=())
            return make_plan(request, machine=bare, known=(), command=False)

        benches: dict[EngineName, Bench] = {}
        for engine, backend in zip(ENGINES, ("srhpm", "stock"), strict=True):
            made = plan(files[shapes.SHALLOW], backend)
            env = plugins().backend(backend).command(made).env
            benches[engine] = Bench(found.bench, env, threads)
        rounds: dict[EngineName, list[Samples]] = {engine: [] for engine in ENGINES}

        def passes() -> None:
            for engine, bench in benches.items():
                say(f"passes of small models, {engine}")
                few = [files[shape] for shape in (shapes.SHALLOW, shapes.DEEP, shapes.LOOKER)]
                rounds[engine].append(passes_of.samples(bench, *few))

        passes()
        say("server")
        talked = serving_of.talk(plan, files[shapes.SHALLOW], files[shapes.TALKER])
        if clock() - begin > SECONDS / 2:
            raise UserError(
                "cannot calibrate",
                "what takes ten seconds on an idle machine took more than "
                f"{SECONDS / 2:.0f}: other programs take the processor (load average {load:.1f})",
                "try again when the machine is idle",
            )
        passes()
        until = begin + SECONDS - _LAST_ROUND
        gpus, gpus_left_out = _gpus(found, machine, threads, until, say, clock)
        products = products_of.products(
            found.kernels, threads, until, lambda _d, _a, text: say(text), clock
        )
        passes()
    best = {engine: passes_of.least(all_) for engine, all_ in rounds.items()}
    overhead = {engine: passes_of.overhead(samples) for engine, samples in best.items()}
    looked = {engine: passes_of.attention(samples) for engine, samples in best.items()}
    serving = serving_of.fit_serving(*talked, overhead["ours"])
    return Calibration(
        about={**facts(machine), "gpus": gpu_facts(machine)},
        taken=taken,
        seconds=clock() - begin,
        load=load,
        threads=threads,
        reads=reads,
        products=products.found,
        attention=looked,
        passes=overhead,
        serving=serving,
        gpus=gpus,
        left_out=(*gpus_left_out, *products.left_out),
    )


def _gpus(
    found: Programs,
    machine: Machine,
    threads: int,
    until: float,
    say: Callable[[str], None],
    clock: Callable[[], float],
) -> tuple[dict[str, GpuSpeed] | None, list[str]]:
    """The GPUs of this machine; none where there are none."""
    here = [gpu for gpu in machine.gpus if not gpu.link]
    if not here:
        return None, []
    if found.gpu is None:
        return None, [
            "GPUs: this server was built without what measures them; type: srhpm-plugin native "
            "build --force"
        ]
    return gpus_of.measure(found.gpu, here, threads, until, lambda name: say(f"GPU {name}"), clock)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """What a shell happens to set of ours and of the server's changes nothing, but for the
    instruction set."""
    ours = (
        "SRHPM_KERNELS",
        "SRHPM_EXACT",
        "SRHPM_DRAFT_N_MIN",
        "SRHPM_DRAFTER_ROWS",
        "SRHPM_PASS_TOKENS",
        "SRHPM_DRAFT_LENGTHS",
        "SRHPM_RELAX",
    )
    names = [n for n in os.environ if n in ours or n.startswith("LLAMA_ARG_")]
    before = {name: os.environ.pop(name) for name in names}
    try:
        yield
    finally:
        os.environ.update(before)

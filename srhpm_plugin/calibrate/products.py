"""Memory and matrix products, measured by ``bench-kernels``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ..bench.kernels import lines, no_measurement
from ..packing import PACKED
from .data import WIDTHS, EngineName, Read
from .fit import rising

# The most used ones first: where time is short, the others are left out.
_USUAL = (
    "Q4_K",
    "Q6_K",
    "Q8_0",
    "Q5_K",
    "Q4_0",
    "Q3_K",
    "IQ4_XS",
    "Q2_K",
    "MXFP4",
    "IQ3_S",
    "Q5_0",
)
TYPES = tuple(dict.fromkeys((*_USUAL, *PACKED)))
FLOATS = ("F16", "BF16", "F32")

_SIDE = 4096  # rows and columns, as wide as models that fill a memory are
_ROUNDS = 2
_SWEEPS = 2
_MEMORY_ROUNDS = 5
_LEAST_MIB = 96
_CACHES = 2  # weights of a pass by what the caches hold: each is evicted before its next turn
_MIB = 1 << 20


def _events(program: Path, argv: Sequence[str], kernels: str = "speed") -> list[dict[str, Any]]:
    with lines(program, argv, kernels) as said:
        text = list(said)
    try:
        events = [json.loads(line) for line in text]
        if not events or not all(isinstance(event, dict) for event in events):
            raise ValueError
    except ValueError:
        raise no_measurement(program, "".join(text)) from None
    return events


def reads(program: Path, threads: int) -> tuple[Read, ...]:
    """Bandwidth by number of threads and kind of pages.

    Raises:
        UserError: the program failed, or said what is no measurement.
    """
    options: dict[str, object] = {"--threads": threads, "--rounds": _MEMORY_ROUNDS}
    events = _events(program, ["--memory", *_argv(options)])
    found: dict[tuple[int, str], list[float]] = {}
    try:
        for event in events:
            gb_s = event["bytes"] / event["ms"] / 1e6
            found.setdefault((event["threads"], event["pages"]), []).append(gb_s)
    except (KeyError, TypeError, ZeroDivisionError):
        raise no_measurement(program, str(events[0])) from None
    return tuple(Read(n, pages, median(gb_s)) for (n, pages), gb_s in found.items())


def _argv(options: dict[str, object]) -> list[str]:
    return [str(word) for pair in options.items() for word in pair]


@dataclass
class Products:
    """Nanoseconds per byte by engine, type and M, as far as they are measured."""

    found: dict[EngineName, dict[str, dict[int, float]]] = field(
        default_factory=lambda: {"ours": {}, "stock": {}}
    )
    left_out: list[str] = field(default_factory=list)


def products(
    program: Path,
    threads: int,
    until: float,
    on_step: Callable[[int, int, str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Products:
    """Every weight type that there is time for, twice: the better of two moments counts, as what
    other programs do in between only adds.

    Args:
        threads: of both engines.
        until: when to stop, by ``clock``; types that were not reached even once are left out.

    Raises:
        UserError: the program failed, or said what is no measurement.
    """
    out = Products()
    start = _events(program, ["--info"])[0]
    mib = max(_LEAST_MIB, _CACHES * int(start.get("cache_bytes", 0)) // _MIB)
    names = (*FLOATS, *TYPES)
    for sweep in range(_SWEEPS):
        for done, name in enumerate(names):
            if clock() >= until:
                break
            on_step(sweep * len(names) + done, _SWEEPS * len(names), f"products of {name} weights")
            options: dict[str, object] = {
                "--types": name,
                "--m": ",".join(map(str, WIDTHS)),
                "--rows": _SIDE,
                "--cols": _SIDE,
                "--threads": threads,
                "--rounds": _ROUNDS,
                "--mib": mib,
            }
            if name in FLOATS:
                # They lie in the same memory for both engines, so the switch decides.
                for engine, kernels in (("ours", "speed"), ("stock", "off")):
                    events = _events(program, ["--plain", *_argv(options)], kernels)
                    _take(out, program, name, events, {"plain": engine})
            else:
                events = _events(program, _argv(options))
                _take(out, program, name, events, {"ours": "ours", "stock": "stock"})
    for types in out.found.values():
        types.update({name: rising(table) for name, table in types.items()})
    out.left_out += [
        f"{name} weights: no time was left" for name in names if name not in out.found["ours"]
    ]
    return out


def _take(
    out: Products,
    program: Path,
    name: str,
    events: list[dict[str, Any]],
    engines: dict[str, Any],
) -> None:
    samples: dict[tuple[str, int], list[float]] = {}
    try:
        sizes = next(event for event in events if event["event"] == "type")
        for event in events:
            if event["event"] == "sample" and event["engine"] in engines:
                samples.setdefault((event["engine"], event["m"]), []).append(float(event["ms"]))
        for said, engine in engines.items():
            nbytes = sizes["packed_bytes" if engine == "ours" else "file_bytes"]
            table = {m: median(samples[said, m]) * 1e6 / nbytes for m in WIDTHS}
            before = out.found[engine].get(name, table)
            out.found[engine][name] = {m: min(table[m], before[m]) for m in WIDTHS}
    except (KeyError, TypeError, ValueError, StopIteration, ZeroDivisionError):
        raise no_measurement(program, str(events[-1])) from None

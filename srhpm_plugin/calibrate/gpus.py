"""GPUs, measured by ``bench-gpu``: a process for each, as a driver that fails ends its program."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..machine.types import Gpu
from .data import GPU_WIDTHS, GpuSpeed

SECONDS = 12.0
"""For all GPUs together: what calibrating them may take of its minute, starts of drivers aside."""

_START = 15.0  # a driver may compile its kernels at first
_LEAST = 1.0

OnDevice = Callable[[str], None]


def measure(
    program: Path,
    gpus: Sequence[Gpu],
    threads: int,
    until: float,
    on_device: OnDevice,
    clock: Callable[[], float] = time.monotonic,
    env: Mapping[str, str] | None = None,
) -> tuple[dict[str, GpuSpeed], list[str]]:
    """The GPUs that could be measured by name, and in words what could not.

    Args:
        threads: of the CPU's side where a graph changes sides.
        until: when to stop, by ``clock``.
        env: of the program, else this process's.
    """
    found: dict[str, GpuSpeed] = {}
    left_out: list[str] = []
    for gpu in gpus:
        left = until - clock()
        if left < _LEAST:
            left_out.append(f"GPU {gpu.name}: no time was left")
            continue
        on_device(gpu.name)
        seconds = min(SECONDS / len(gpus), left)
        argv = [str(program), gpu.name, str(threads), f"{seconds:.1f}"]
        events, why = _run(argv, min(seconds + _START, left), env)
        speed = _speed(gpu, events)
        if speed is not None:
            found[gpu.name] = speed
            left_out += [f"GPU {gpu.name}: {words}" for words in speed.left_out]
        if why or speed is None:
            left_out.append(f"GPU {gpu.name}: {why or 'it said what is no measurement'}")
    return found, left_out


def _run(
    argv: Sequence[str], timeout: float, env: Mapping[str, str] | None
) -> tuple[list[dict[str, Any]], str | None]:
    """What a program said until its end, and why it did not come to that."""
    why: str | None = None
    try:
        done = subprocess.run(
            argv,
            env=None if env is None else dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        out = done.stdout
        if done.returncode != 0:
            why = _last(done.stderr) or f"{argv[0]} ended with code {done.returncode}"
    except subprocess.TimeoutExpired as late:
        out, why = late.stdout or b"", f"it was not done within {timeout:.0f} s"
    except OSError as error:
        return [], f"{argv[0]}: {error.strerror or error}"
    return _events(out), why


def _last(stderr: bytes) -> str:
    lines = [line.strip() for line in stderr.decode("utf-8", "replace").splitlines()]
    said = [line for line in lines if line.startswith("bench-gpu:")] or [s for s in lines if s]
    return said[-1].removeprefix("bench-gpu:").strip()[:200] if said else ""


def _events(out: bytes) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for line in out.decode("utf-8", "replace").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a driver's own words, or a line that was cut off
        if isinstance(event, dict):
            events.append(event)
    return events


def _speed(gpu: Gpu, events: Sequence[Mapping[str, Any]]) -> GpuSpeed | None:
    """What the events say; ``None`` where that is nothing, or no figures."""
    kinds: dict[str, Mapping[str, Any]] = {str(event.get("event")): event for event in events}
    products: dict[str, dict[int, float]] = {}
    gflop_s: dict[str, float] = {}
    left_out: list[str] = []
    try:
        for event in events:
            if event.get("event") == "left_out":
                left_out.append(f"{event['what']}: {event['why']}")
            elif event.get("event") == "product":
                name, m, ms = str(event["type"]), int(event["m"]), float(event["ms"])
                products.setdefault(name, {})[m] = ms * 1e6 / float(event["bytes"])
                if m == GPU_WIDTHS[-1]:
                    gflop_s[name] = float(event["flop"]) / ms / 1e6
        if "launch" not in kinds:
            return None
        link, crossing = kinds.get("link"), kinds.get("crossing")
        made = GpuSpeed(
            description=gpu.description,
            total=gpu.total,
            launch_ms=float(kinds["launch"]["ms"]),
            crossing_ms=None if crossing is None else float(crossing["ms"]),
            up_bytes_s=None if link is None else float(link["up_bytes_s"]),
            down_bytes_s=None if link is None else float(link["down_bytes_s"]),
            products={n: t for n, t in products.items() if sorted(t) == list(GPU_WIDTHS)},
            gflop_s={n: g for n, g in gflop_s.items() if sorted(products[n]) == list(GPU_WIDTHS)},
            left_out=tuple(left_out),
        )
        return GpuSpeed.from_json(made.to_json())  # figures, none of them below nothing
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return None

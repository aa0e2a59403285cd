"""Where the calibration lies, and whether it still holds."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..dropin.cache import CALIBRATION
from ..dropin.files import read_json, write_json
from ..errors import UserError
from ..home import cache_dir, require_usable
from ..machine.types import Gpu, Machine
from ..native.locate import find_server
from .data import VERSION, Calibration, GpuSpeed

_WORDS = {
    "version": "how it is measured",
    "cpu": "the processor",
    "cores": "the number of usable cores",
    "isa": "the processor's instruction sets",
    "memory": "the amount of memory",
    "huge_pages": "the system's setting for huge pages",
    "server": "the server",
    "kernels": "SRHPM_ISA",
}
COMMAND = "srhpm-plugin calibrate"

_GIB = 1 << 30


def path() -> Path:
    """The file."""
    return cache_dir() / CALIBRATION


def facts(machine: Machine) -> dict[str, Any]:
    """What figures depend on."""
    cpu = machine.cpu
    return {
        "version": VERSION,
        "cpu": cpu.name,
        "cores": [cpu.usable, cpu.usable_performance, cpu.logical],
        "isa": sorted(cpu.isa),
        # A kernel keeps a little more or less for itself from start to start.
        "memory": round(machine.memory.total / _GIB),
        "huge_pages": machine.memory.huge_pages,
        "server": _server(),
        "kernels": os.environ.get("SRHPM_ISA", ""),
    }


def gpu_facts(machine: Machine) -> list[list[Any]]:
    """The same of this machine's GPUs: name, description, GiB. Apart from :func:`facts`, as what is
    known of processor and RAM holds without them."""
    return [
        [gpu.name, gpu.description, round(gpu.total / _GIB)] for gpu in machine.gpus if not gpu.link
    ]


def _server() -> list[object] | None:
    try:
        server = find_server()
        if server is None:
            return None
        stat = server.stat()
    except (OSError, UserError):
        return None
    return [str(server.resolve()), stat.st_size, stat.st_mtime_ns]


def load() -> Calibration | None:
    """What was measured last; ``None`` before, or when the file is damaged."""
    file = path()
    try:
        stat = file.stat()
    except OSError:
        return None
    return _read(file, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=1)
def _read(file: Path, _changed: int, _size: int) -> Calibration | None:
    """Kept for as long as the file stays the same: `models` asks for each of its rows."""
    try:
        return Calibration.from_json(read_json(file))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def save(calibration: Calibration) -> None:
    """Keeps it for the planner.

    Raises:
        UserError: nothing can be written there.
    """
    if not write_json(path(), calibration.to_json()):
        require_usable()
        raise UserError(f"cannot write {path()}", "the folder does not take it")


def stale(calibration: Calibration, machine: Machine) -> str | None:
    """Why the figures no longer hold, in words; ``None`` while they do."""
    now = facts(machine)
    changed = [_WORDS[name] for name in now if calibration.about.get(name) != now[name]]
    if not changed:
        return None
    return f"{changed[0] if len(changed) == 1 else ', '.join(changed)} changed since"


def gpus_changed(calibration: Calibration, machine: Machine) -> str | None:
    """Why what was found out about GPUs no longer holds, in words; ``None`` while it does."""
    same = calibration.about.get("gpus", []) == gpu_facts(machine)
    return None if same else "the GPUs changed since"


def gpu_speed(calibration: Calibration, gpu: Gpu) -> GpuSpeed | None:
    """What was measured of a GPU; ``None``: nothing, or of another one under its name."""
    found = (calibration.gpus or {}).get(gpu.name)
    same = found is not None and (found.description, round(found.total / _GIB)) == (
        gpu.description,
        round(gpu.total / _GIB),
    )
    return found if same else None


def current(machine: Machine) -> Calibration | None:
    """The figures if there are any and they hold for this machine and build."""
    found = load()
    return found if found is not None and stale(found, machine) is None else None

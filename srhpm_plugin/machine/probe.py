"""One look at the machine: processor, memory, GPUs. What cannot be found out becomes a note."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import psutil

from .cgroup import Limits, read_limits
from .cores import Core, allowed_cpus, read_cores
from .foreign import CPUS_PER_GROUP, darwin_cores, windows_cores
from .gpus import read_gpus
from .isa import darwin_isa, linux_isa, sysctl_value, windows_isa
from .memory import portable_memory, read_memory, read_ram
from .tree import Tree, fields
from .types import Cpu, Machine, Memory


def probe(server: Path | None = None, root: Path | None = None) -> Machine:
    """The machine as it is now. Never raises for what the system says.

    Args:
        server: a ``llama-server`` to ask for the GPUs it can use; without it, only NVIDIA's
            driver is asked.
        root: read a Linux machine laid out below this folder (``proc``, ``sys``) instead of this
            one.
    """
    system = "Linux" if root is not None else platform.system()
    notes: list[str] = []
    if system == "Linux":
        cpu, memory = _linux(root or Path("/"), notes)
    elif system == "Windows":
        cpu = _windows_cpu(notes)
        memory = portable_memory(notes)
    elif system == "Darwin":
        cpu = _darwin_cpu(notes)
        memory = portable_memory(notes)
    else:
        cpu = make_cpu(platform.processor(), (), (), notes)
        memory = portable_memory(notes)
    gpus = read_gpus(server, notes)
    return Machine(cpu, memory, gpus, tuple(notes))


def make_cpu(
    name: str,
    cores: Sequence[Core],
    isa: tuple[str, ...],
    notes: list[str],
    *,
    allowed: frozenset[int] | None = None,
    quota: float | None = None,
) -> Cpu:
    """Counts cores.

    ``usable`` is the number of cores with an allowed CPU, and no more than the quota's whole
    CPUs: with more threads than granted CPUs all of them wait for the one that is held back.
    """
    if not cores:
        notes.append("the layout of the processor's cores is unknown: counted by psutil")
        physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
        cores = [Core(frozenset({number})) for number in range(physical)]
        logical = psutil.cpu_count() or physical
        # These numbers are made up, an affinity mask says nothing about them.
        allowed = frozenset(range(len(allowed))) if allowed is not None else None
    else:
        logical = sum(len(core.cpus) for core in cores)
    physical = len(cores)
    ours = [core for core in cores if allowed is None or core.cpus & allowed]
    if not ours:
        notes.append("the CPUs allowed to this process are none of those online: ignored")
        ours = list(cores)
    usable = len(ours)
    # Pinned to efficiency cores alone, none of them holds a faster one up.
    fast = sum(core.performance for core in ours) or usable
    if quota is not None:
        usable = max(1, min(usable, int(quota)))
        fast = min(fast, usable)
    return Cpu(
        name=name or "unknown",
        logical=logical,
        physical=physical,
        performance=sum(core.performance for core in cores) or physical,
        usable=usable,
        usable_performance=fast,
        cgroup_limit=quota,
        smt=logical > physical,
        isa=isa,
    )


def _linux(root: Path, notes: list[str]) -> tuple[Cpu, Memory]:
    tree = Tree(root)
    ram = read_ram(tree)
    if ram[0]:
        limits = read_limits(tree, ram[0])
        memory = read_memory(tree, ram, limits)
    else:
        limits = Limits()
        memory = portable_memory(tree.notes)
    cpu = make_cpu(
        _linux_name(tree),
        read_cores(tree),
        linux_isa(tree),
        tree.notes,
        allowed=allowed_cpus(tree),
        quota=limits.cpus,
    )
    notes.extend(tree.notes)
    return cpu, memory


def _linux_name(tree: Tree) -> str:
    for key, value in fields(tree.text("proc/cpuinfo") or ""):
        if key in ("model name", "cpu model", "Model", "cpu", "uarch") and value:
            return value
    board = tree.text("proc/device-tree/model")
    return board.strip("\0") if board else platform.machine()


def _windows_cpu(notes: list[str]) -> Cpu:
    cores = windows_cores(notes)
    try:
        allowed: frozenset[int] | None = frozenset(psutil.Process().cpu_affinity())
    except (AttributeError, OSError, psutil.Error):
        allowed = None
    if allowed is not None:
        # The mask speaks of the process's first group only; the others are open to it.
        allowed |= {c for core in cores for c in core.cpus if c >= CPUS_PER_GROUP}
    return make_cpu(platform.processor(), cores, windows_isa(), notes, allowed=allowed)


def _darwin_cpu(notes: list[str]) -> Cpu:
    name = sysctl_value("machdep.cpu.brand_string") or platform.processor()
    return make_cpu(name, darwin_cores(sysctl_value), darwin_isa(sysctl_value), notes)

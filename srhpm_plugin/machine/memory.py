"""RAM: what is there, what is free, swap, huge pages, NUMA nodes."""

from __future__ import annotations

import re

import psutil

from .cgroup import Limits
from .tree import Tree, fields
from .types import Memory

_THP = "sys/kernel/mm/transparent_hugepage/enabled"
_NODES = "sys/devices/system/node"


def read_ram(tree: Tree) -> tuple[int, int, int]:
    """(total, available, swap used) in bytes from /proc/meminfo; zeros with a note if damaged."""
    kib: dict[str, int] = {}
    for key, value in fields(tree.text("proc/meminfo") or ""):
        match = re.fullmatch(r"([0-9]{1,18}) kB", value)
        if match:
            kib[key] = int(match[1])
    total = kib.get("MemTotal", 0)
    available = kib.get("MemAvailable")
    if available is None:
        # Kernels before 3.14 and some containers.
        available = kib.get("MemFree", 0) + kib.get("Buffers", 0) + kib.get("Cached", 0)
    if not total:
        tree.note("/proc/meminfo does not say how much memory there is")
    swap = max(0, kib.get("SwapTotal", 0) - kib.get("SwapFree", 0))
    return total * 1024, min(available, total) * 1024, swap * 1024


def read_memory(tree: Tree, ram: tuple[int, int, int], limits: Limits) -> Memory:
    """Linux memory facts; ``ram`` as :func:`read_ram` gives it."""
    total, available, swap = ram
    free = available if limits.memory_free is None else min(available, limits.memory_free)
    return Memory(
        total=total,
        free=free,
        swap_used=swap,
        cgroup_limit=limits.memory,
        huge_pages=_huge_pages(tree),
        numa_nodes=_numa_nodes(tree),
    )


def portable_memory(notes: list[str]) -> Memory:
    """Memory facts of any other system, through psutil."""
    ram = psutil.virtual_memory()
    try:
        swap = int(psutil.swap_memory().used)
    except (OSError, RuntimeError) as error:  # Windows without performance counters
        notes.append(f"swap in use is unknown: {error}")
        swap = 0
    return Memory(int(ram.total), int(ram.available), swap, None, "unknown", 1)


def _huge_pages(tree: Tree) -> str:
    text = tree.text(_THP)
    match = re.search(r"\[(always|madvise|never)\]", text or "")
    if text and not match:
        tree.note(f"/{_THP} names no mode")
    return match[1] if match else "unknown"


def _numa_nodes(tree: Tree) -> int:
    """Nodes with CPUs: memory of GPUs and of expansion cards forms nodes too, without any."""
    names = tree.children(_NODES, r"node[0-9]{1,4}")
    return sum(bool(tree.cpu_list(f"{_NODES}/{name}/cpulist")) for name in names) or 1

"""What the planner knows of a machine: plain data, filled by :mod:`srhpm_plugin.machine.probe`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Cpu:
    """Processor facts.

    Attributes:
        name: marketing name.
        logical: logical CPUs of the machine.
        physical: physical cores.
        performance: physical performance cores of the machine; equals ``physical`` without a P/E
            split.
        usable: physical cores this process may use after affinity and cgroup limits.
        usable_performance: the performance cores among them; all where none of them is one.
        cgroup_limit: CPUs granted by a cgroup quota, or ``None``.
        smt: more than one hardware thread per core.
        isa: instruction sets that matter here, e.g. ``avx2``, ``avx512_vnni``.
    """

    name: str
    logical: int
    physical: int
    performance: int
    usable: int
    usable_performance: int
    cgroup_limit: float | None
    smt: bool
    isa: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """RAM in bytes. ``free`` is what a new process may take, the cgroup limit included."""

    total: int
    free: int
    swap_used: int
    cgroup_limit: int | None
    huge_pages: str  # THP mode: "always", "madvise", "never" or "unknown"
    numa_nodes: int


@dataclass(frozen=True)
class Link:
    """How an RPC worker is reached, as measured.

    Attributes:
        endpoint: ``HOST:PORT``.
        round_trip_ms: of a request without data.
        up_bytes_s, down_bytes_s: to the worker and back.
        read_bytes_s: weights that the worker reads in products with one token.
    """

    endpoint: str
    round_trip_ms: float
    up_bytes_s: float
    down_bytes_s: float
    read_bytes_s: float


@dataclass(frozen=True)
class Gpu:
    """One GPU. ``name`` is the device name the server knows (``CUDA0``), bytes are bytes; with a
    ``link`` it is a device of an RPC worker."""

    name: str
    description: str
    total: int
    free: int
    source: str  # "nvml", "llama-server --list-devices" or "bench-rpc"
    link: Link | None = None


@dataclass(frozen=True)
class Machine:
    """Everything the planner asks of the hardware, taken at one moment."""

    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...]
    notes: tuple[str, ...] = ()  # what could not be found out, in words

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries and lists."""
        return asdict(self)

"""Memory for several models at once: what is really free, and what would be if others left.

Measured free memory is not all to be had: a loaded server fills its context and prompt cache
little by little, and weights that it maps count as free although they would be read again for each
token. So what a server's plan says of RAM and what it does not yet hold privately is set aside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import psutil

from ..machine.types import Machine
from ..plan import LaunchPlan

CPU = "CPU"


@dataclass(frozen=True)
class Resident:
    """A loaded server.

    Attributes:
        plan: what it was to take, by device.
        held: bytes of RAM that are its own now, see :func:`private_bytes`.
    """

    plan: LaunchPlan
    held: int

    @property
    def planned(self) -> Mapping[str, int]:
        """Bytes by device."""
        return {use.device: use.total for use in self.plan.memory}


def private_bytes(pid: int) -> int:
    """RAM that would be free without the process: pages of files are not counted, where the system
    tells them apart (Linux); 0 for one that is gone."""
    try:
        info = psutil.Process(pid).memory_info()
    except psutil.Error:
        return 0
    return max(int(info.rss) - int(getattr(info, "shared", 0)), 0)


def beside(machine: Machine, loaded: Iterable[Resident]) -> Machine:
    """``machine`` with what the loaded servers have yet to take set aside."""
    pending = sum(max(one.planned.get(CPU, 0) - one.held, 0) for one in loaded)
    free = max(machine.memory.free - pending, 0)
    return replace(machine, memory=replace(machine.memory, free=free))


def without(machine: Machine, loaded: Iterable[Resident]) -> Machine:
    """``machine`` as it would be if the servers were gone."""
    loaded = list(loaded)
    memory = machine.memory
    free = min(memory.free + sum(one.held for one in loaded), memory.total)
    gpus = tuple(
        replace(
            gpu,
            free=min(gpu.free + sum(one.planned.get(gpu.name, 0) for one in loaded), gpu.total),
        )
        for gpu in machine.gpus
    )
    return replace(machine, memory=replace(memory, free=free), gpus=gpus)


def as_good(plan: LaunchPlan, best: LaunchPlan) -> bool:
    """Whether a plan beside other models is what it would be alone. Only the cache of old prompts
    may be smaller."""

    def gist(p: LaunchPlan) -> object:
        draft = p.draft
        return (
            p.kind,
            p.ctx,
            p.gpu_layers,
            p.layer_set,
            p.cpu_moe,
            p.kernels,
            None if draft is None else (draft.type, draft.path, draft.device),
        )

    return gist(plan) == gist(best)

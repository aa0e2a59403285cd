"""The plan while it is being made: what the memory step needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import DraftChoice, HostRequest, Placement, PlanKind, RollbackWay


@dataclass(frozen=True)
class PlanOutline:
    """Everything decided before memory is counted.

    ``packed``: our kernels run, which hold weights in RAM in a form of their own (also beside
    layers on a GPU). ``rollback``: see :mod:`.rollback`.
    ``layer_set``: see :class:`PlacementChoice`.
    """

    request: HostRequest
    model: ModelInfo
    machine: Machine
    kind: PlanKind
    choice: DraftChoice
    ctx: int
    threads: int
    gpu_layers: int
    placement: tuple[Placement, ...]
    cache_type_k: str
    cache_type_v: str
    cache_ram_mib: int
    ctx_checkpoints: int
    cpu_moe: int = 0
    packed: bool = False
    rollback: RollbackWay = "planes"
    layer_set: tuple[int, ...] = ()


@dataclass(frozen=True)
class PlacementChoice:
    """Outcome of the placement step.

    Attributes:
        gpu_layers: as ``-ngl`` counts them: the last layers, the head being the very last.
        cpu_moe: first layers whose experts stay on the CPU although the layer is on a GPU.
        draft_device: ``CPU`` or the device that holds the drafter.
        reasons: in words.
        layer_set: the GPU of each layer and of the head, by its index, -1 for the CPU; empty for
            the last ``gpu_layers``, else ``gpu_layers`` counts those on GPUs.
    """

    gpu_layers: int
    cpu_moe: int = 0
    draft_device: str = "CPU"
    reasons: tuple[str, ...] = ()
    layer_set: tuple[int, ...] = ()

"""The plan while it is being made: what the memory step needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import DraftChoice, HostRequest, Placement, PlanKind


@dataclass(frozen=True)
class PlanOutline:
    """Everything decided before memory is counted."""

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

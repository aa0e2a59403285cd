"""What a device can take, and whether a plan in the making fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..machine.types import Machine
from ..plan import MemoryUse
from .kv import CELL_STEP
from .memory import CPU, placements
from .outline import PlanOutline
from .units import MIB

# Kept free beside the parts that are counted. In RAM: the server's code, its vocabulary and
# thread stacks. On a GPU: the driver's context and the matrix library's work space, which take
# more on bigger cards.
RAM_RESERVE = 256 * MIB
GPU_RESERVE = 512 * MIB
GPU_RESERVE_SHARE = 20

# No context below this is offered; the longest one tried when the header states none.
LEAST_CTX = 512
LONGEST_CTX = 1 << 20


@dataclass(frozen=True)
class Settled:
    """A placed plan with its memory; ``short`` lists the devices that cannot hold their part."""

    plan: PlanOutline
    memory: tuple[MemoryUse, ...]
    reasons: tuple[str, ...]
    short: tuple[MemoryUse, ...]


def reserve(device: str, machine: Machine) -> int:
    """Bytes to leave free on a device."""
    for gpu in machine.gpus:
        if gpu.name == device:
            return max(GPU_RESERVE, gpu.total // GPU_RESERVE_SHARE)
    return RAM_RESERVE


def shortage(memory: Sequence[MemoryUse], machine: Machine) -> tuple[MemoryUse, ...]:
    """The devices on which the parts and the reserve exceed what is free; a GPU that is not used
    is never short."""
    return tuple(
        use
        for use in memory
        if (use.total or use.device == CPU) and use.total + reserve(use.device, machine) > use.free
    )


def ask_memory(plan: PlanOutline) -> tuple[MemoryUse, ...]:
    """The memory step, whichever plugin does it."""
    from ..plugins import plugins

    return tuple(plugins().hook.srhpm_plan_memory(plan=plan))


def put(
    plan: PlanOutline,
    gpu_layers: int,
    cpu_moe: int,
    draft_device: str,
    layer_set: tuple[int, ...] = (),
) -> PlanOutline:
    """``plan`` with a placement."""
    choice = plan.choice
    if choice.draft is not None and choice.draft.type == "draft-simple":
        choice = replace(choice, draft=replace(choice.draft, device=draft_device))
    placed = replace(
        plan, choice=choice, gpu_layers=gpu_layers, cpu_moe=cpu_moe, layer_set=layer_set
    )
    return replace(placed, placement=placements(placed, packed=placed.packed))


def settle(plan: PlanOutline) -> Settled:
    """Places the plan and counts its memory."""
    from ..plugins import plugins

    where = plugins().hook.srhpm_plan_placement(plan=plan)
    placed = put(plan, where.gpu_layers, where.cpu_moe, where.draft_device, where.layer_set)
    memory = ask_memory(placed)
    return Settled(placed, memory, where.reasons, shortage(memory, plan.machine))


def fits(settled: Settled) -> bool:
    """Every device can hold its part."""
    return not settled.short


def largest_ctx(
    plan: PlanOutline, limit: int, good: Callable[[Settled], bool] = fits
) -> int | None:
    """The longest context of at most ``limit`` tokens with which the plan is ``good``, in the
    server's steps; ``None`` when it is not even with the shortest."""

    def works(steps: int) -> bool:
        return good(settle(replace(plan, ctx=steps * CELL_STEP)))

    low, high = LEAST_CTX // CELL_STEP, max(limit, LEAST_CTX) // CELL_STEP
    if not works(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if works(middle) else (low, middle - 1)
    return low * CELL_STEP


def ctx_limit(plan: PlanOutline) -> int:
    """The longest context worth asking for: the server gives no slot more than the model was
    trained for."""
    return plan.model.n_ctx_train or LONGEST_CTX

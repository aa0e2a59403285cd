"""Whether the server will run our kernels, which hold weights in RAM in a form of their own."""

from __future__ import annotations

import os
from typing import cast

from ..backend import Kernels
from ..errors import UserError
from ..machine.types import Machine
from ..model import ModelInfo
from ..packing import is_factor, packed_bytes
from ..plan import HostRequest, KernelSetting
from .memory import CPU, devices_of, placements
from .outline import PlanOutline
from .units import size
from .weights import trunk_bytes, weight_map

VARIABLE = "SRHPM_KERNELS"
SETTINGS = ("speed", "off")


def asked(request: HostRequest) -> KernelSetting | None:
    """What the request or else the environment says of kernels.

    Raises:
        UserError: it is none of :data:`SETTINGS`.
    """
    said, where = request.kernels, "--kernels "
    if said is None:
        said, where = cast("KernelSetting", os.environ.get(VARIABLE) or None), f"{VARIABLE}="
    if said is not None and said not in SETTINGS:
        raise UserError(
            f"cannot use {where}{said}", "there is no such setting", f"give {' or '.join(SETTINGS)}"
        )
    return said


def kernels_of(request: HostRequest, model: ModelInfo, machine: Machine) -> Kernels | None:
    """Which kernels the backend will run; ``None`` for a backend that has none of ours."""
    from ..plugins import plugins

    ask = getattr(plugins().backend(request.backend), "kernels", None)
    if ask is None:
        return None
    answer: Kernels = ask(tuple(model.quant_mix), asked(request) or "speed", machine.cpu.isa)
    return answer


def are_packed(request: HostRequest, model: ModelInfo, machine: Machine) -> bool:
    """Whether weights in RAM are packed for our kernels."""
    kernels = kernels_of(request, model, machine)
    return kernels is not None and kernels.isa is not None


def setting_of(plan: PlanOutline) -> KernelSetting:
    """The setting of a settled plan: also ``off`` where the backend has none of our kernels, or
    where packed weights would not fit."""
    kernels = kernels_of(plan.request, plan.model, plan.machine)
    given_up = kernels is not None and kernels.isa is not None and not plan.packed
    if kernels is None or given_up:
        return "off"
    return asked(plan.request) or "speed"


def kernel_reasons(plan: PlanOutline) -> tuple[str, ...]:
    """Which kernels run in a settled plan, and what their form of the weights takes."""
    kernels = kernels_of(plan.request, plan.model, plan.machine)
    if kernels is None or (kernels.isa is not None and not plan.packed):
        return ()  # said elsewhere
    if kernels.isa is None:
        return (kernels.why,)
    layers = devices_of(plan)
    if CPU not in layers and not plan.cpu_moe:
        return ()  # all that is multiplied by lies on GPUs
    if not any(is_factor(t) and packed_bytes(t) is not None for t in plan.model.tensors):
        return (f"{kernels.why}: weights stay as the file holds them",)
    packed, plain = _in_ram(plan, packed=True), _in_ram(plan, packed=False)
    where = " in RAM" if plan.gpu_layers else ""
    reason = (
        f"{kernels.why}: loading packs the weights{where}, {size(packed)} instead of {size(plain)}"
    )
    copy = weight_map(plan.model, packed=True).copy if layers[-1] == CPU else 0
    if copy:
        reason += f", {size(copy)} of it the token table once more, as the output matrix"
    return (reason,)


def _in_ram(plan: PlanOutline, packed: bool) -> int:
    """Bytes of the target's weights in RAM."""
    if not plan.gpu_layers:
        return trunk_bytes(plan.model, packed)
    return placements(plan, packed)[0].nbytes

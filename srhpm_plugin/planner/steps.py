"""The planner's built-in steps, as a plugin like any other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..hookspecs import hookimpl
from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import DraftChoice, HostRequest, LaunchPlan, MemoryUse, PlanKind, Predicted
from .cost.acceptance import acceptance
from .cost.costs import costs
from .cost.predict import predict
from .cost.speculation import Speculation, speculation
from .cost.types import Acceptance, Costs
from .drafter import choose_draft
from .kernels import are_packed
from .kind import choose_kind
from .memory import memory
from .outline import PlacementChoice, PlanOutline
from .place import place
from .threads import choose_threads
from .workers import has_workers, place_with_workers


@hookimpl
def srhpm_plan_kind(
    request: HostRequest, model: ModelInfo, machine: Machine
) -> tuple[PlanKind, str]:
    """See :mod:`.kind`."""
    return choose_kind(request, model, machine)


@hookimpl
def srhpm_plan_draft(
    request: HostRequest, model: ModelInfo, machine: Machine, known: Sequence[Path]
) -> DraftChoice:
    """See :mod:`.drafter`."""
    return choose_draft(request, model, known, packed=are_packed(request, model, machine))


@hookimpl
def srhpm_plan_threads(request: HostRequest, machine: Machine) -> tuple[int, str]:
    """See :mod:`.threads`."""
    return choose_threads(request, machine)


@hookimpl
def srhpm_plan_placement(plan: PlanOutline) -> PlacementChoice:
    """See :mod:`.place`, and :mod:`.workers` for layers on other machines."""
    return place_with_workers(plan) if has_workers(plan) else place(plan)


@hookimpl
def srhpm_plan_memory(plan: PlanOutline) -> Sequence[MemoryUse]:
    """See :mod:`.memory`."""
    return memory(plan)


@hookimpl
def srhpm_plan_costs(plan: LaunchPlan, machine: Machine) -> Costs | None:
    """See :mod:`.cost.costs`."""
    return costs(plan, machine)


@hookimpl
def srhpm_plan_acceptance(plan: LaunchPlan) -> Acceptance | None:
    """See :mod:`.cost.acceptance`."""
    return acceptance(plan)


@hookimpl
def srhpm_plan_speculation(plan: LaunchPlan, machine: Machine, asked: bool) -> Speculation | None:
    """See :mod:`.cost.speculation`."""
    return speculation(plan, machine, asked)


@hookimpl
def srhpm_plan_predict(plan: LaunchPlan, machine: Machine) -> Predicted:
    """What was measured comes before what the calibration says, see :mod:`.cost.predict`."""
    return predict(plan, machine) or Predicted()

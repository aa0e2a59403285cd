"""The hooks that plugins implement. Built-ins use the same ones (entry point group
``srhpm_plugin.v1``).

Every hook returns data; the core executes it. Hooks marked *first result* stop at the first
plugin that answers with something other than ``None``, third parties before built-ins, so one
step of the planner can be replaced without touching the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from .backend import Backend
    from .host import Host
    from .machine.types import Machine
    from .model import ModelInfo
    from .plan import DraftChoice, HostRequest, LaunchPlan, MemoryUse, PlanKind, Predicted
    from .planner.cost.speculation import Speculation
    from .planner.cost.types import Acceptance, Costs
    from .planner.outline import PlacementChoice, PlanOutline

PROJECT = "srhpm_plugin"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def srhpm_backends() -> Iterable[Backend]:
    """Inference engines that this plugin brings."""


@hookspec
def srhpm_hosts() -> Iterable[Host]:
    """Hosts that this plugin knows: apps that start a ``llama-server``."""


@hookspec
def srhpm_model_sources() -> Iterable[Path]:
    """Files and folders in which GGUF models may be found (searched one level of a folder tree
    deep or more, as the plugin's host lays them out)."""


@hookspec(firstresult=True)
def srhpm_plan_kind(
    request: HostRequest, model: ModelInfo, machine: Machine
) -> tuple[PlanKind, str] | None:
    """*First result.* The plan kind and the reason for it, in words."""


@hookspec(firstresult=True)
def srhpm_plan_draft(
    request: HostRequest, model: ModelInfo, machine: Machine, known: Sequence[Path]
) -> DraftChoice | None:
    """*First result.* The drafter, chosen among ``known`` model files, MTP heads and n-grams."""


@hookspec(firstresult=True)
def srhpm_plan_threads(request: HostRequest, machine: Machine) -> tuple[int, str] | None:
    """*First result.* Compute threads (decode and batch alike) and the reason."""


@hookspec(firstresult=True)
def srhpm_plan_placement(plan: PlanOutline) -> PlacementChoice | None:
    """*First result.* Which layers lie on the GPUs. ``plan`` has everything but the placement; its
    context may be a trial value, as the largest one that fits is searched with this step."""


@hookspec(firstresult=True)
def srhpm_plan_memory(plan: PlanOutline) -> Sequence[MemoryUse] | None:
    """*First result.* Bytes per part and device for the plan so far."""


@hookspec(firstresult=True)
def srhpm_plan_costs(plan: LaunchPlan, machine: Machine) -> Costs | None:
    """*First result.* What the passes of a settled plan cost; ``None`` where nothing is known of
    the devices it uses."""


@hookspec(firstresult=True)
def srhpm_plan_acceptance(plan: LaunchPlan) -> Acceptance | None:
    """*First result.* How much of what the plan's drafter proposes is kept."""


@hookspec(firstresult=True)
def srhpm_plan_speculation(plan: LaunchPlan, machine: Machine, asked: bool) -> Speculation | None:
    """*First result.* Whether to draft, and how far; ``None`` leaves the plan's drafter as it is.
    ``asked``: the user named the drafter."""


@hookspec(firstresult=True)
def srhpm_plan_predict(plan: LaunchPlan, machine: Machine) -> Predicted | None:
    """*First result.* Expected speed."""

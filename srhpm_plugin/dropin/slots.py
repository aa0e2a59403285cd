"""How many requests are served at once where the host does not say.

``llama-server`` then has four slots over one context (``tools/server/server.cpp``, b10488 and
b11434), so two clients are answered side by side and each may use the whole context. Ollama, LM
Studio, Jan and Unsloth Studio say a number; Lemonade, RamaLama, llama-swap and routers need not.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import UserError
from ..machine.types import Machine
from ..plan import HostRequest, LaunchPlan
from ..planner.make import make_plan
from .arguments import Arguments

AUTO = 4
SHARED = "--kv-unified"
_NAME = "-kvu"


def left_open(said: Arguments) -> bool:
    """Whether the number is the server's to choose, and what it does then is not spoken against."""
    shared = said.last(_NAME)
    if shared is not None and (
        shared.startswith(("-no", "--no")) or shared in ("0", "false", "off")
    ):
        return False
    named = [item.values[-1] for item in said.items if item.name == "-np"]
    return "-np" not in said.variables and all(value in ("auto", "-1") for value in named)


def shared(plan: LaunchPlan, request: HostRequest, machine: Machine) -> LaunchPlan | None:
    """``plan``, made for one slot, for four over the same context; ``None`` where they would cost
    it its drafter, its kernels or its place, or do not fit.

    The planner counts a context per slot: a quarter each is the same cache, and states of
    recurrent layers, logits and windows are counted for all four.
    """
    if plan.ctx < AUTO:
        return None
    return same_with(plan, replace(request, parallel=AUTO, ctx=plan.ctx // AUTO), machine)


def same_with(plan: LaunchPlan, request: HostRequest, machine: Machine) -> LaunchPlan | None:
    """``plan`` for another number of slots or tokens; ``None`` where that would cost it its
    drafter, its kernels or its place, or does not fit."""
    asked = replace(request, draft=_as_chosen(plan), kernels=plan.kernels)
    try:
        other = make_plan(asked, machine=machine, known=(), command=False)
    except UserError:
        return None
    if _what_counts(other) != _what_counts(plan):
        return None
    return replace(other, reasons=plan.reasons, warnings=plan.warnings, predicted=plan.predicted)


def _as_chosen(plan: LaunchPlan) -> str:
    """The drafter as one asks for it."""
    if plan.draft is None:
        return "none"
    if plan.draft.type == "ngram":
        return "ngram"
    # A head of the model's own comes before anything else.
    return str(plan.draft.path) if plan.draft.path is not None else "auto"


def _what_counts(plan: LaunchPlan) -> tuple[object, ...]:
    draft = plan.draft
    drafter = (draft.type, draft.path, draft.device) if draft is not None else None
    return plan.kind, drafter, plan.kernels, plan.gpu_layers, plan.layer_set, plan.cpu_moe

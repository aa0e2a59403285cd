"""How long a context is where the host does not say.

``llama-server`` then takes all that the model was trained for, less what does not fit. A planned
launch of our own is content with less, but who got long answers from a host expects them further
on. Ollama, LM Studio, Jan, Lemonade and Unsloth Studio say a number; RamaLama, llama-swap and
routers need not.
"""

from __future__ import annotations

from dataclasses import replace

from ..machine.types import Machine
from ..plan import HostRequest, LaunchPlan
from ..planner.memory import CPU
from .slots import same_with

# Upstream fills the RAM. Ours holds weights there that the system cannot take back, so half of what
# is free is left to the user's other programs.
_SHARE = 2


def longest(plan: LaunchPlan, request: HostRequest, machine: Machine) -> LaunchPlan:
    """``plan``, made for the usual context, for the longest one that costs it nothing else: all of
    the model's, or a half, a quarter and so on of it."""
    trained = plan.model.n_ctx_train
    ctx = trained
    while ctx > plan.ctx:
        longer = same_with(plan, replace(request, ctx=ctx), machine)
        if longer is not None and _modest(longer):
            reason = f"context of {ctx} tokens, of {trained} that the model has, as none was named"
            return replace(longer, reasons=(*plan.reasons, reason))
        ctx //= 2
    return plan


def _modest(plan: LaunchPlan) -> bool:
    return all(use.total <= use.free // _SHARE for use in plan.memory if use.device == CPU)

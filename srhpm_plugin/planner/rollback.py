"""How a recurrent model goes back over rejected tokens, and what is kept for that.

With the states after each of the last tokens kept (*planes*, beside the current one), going back
is free: the next pass reads another. Without, all states are copied to RAM before each
verification, and after a rejected token put back and the accepted tokens computed once more.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .outline import PlanOutline

VARIABLE = "SRHPM_ROLLBACK"

MOST_PLANES = 8
"""As native/overlay/common/srhpm-planes.h has it; upstream's own drafters are not limited."""

# Architectures that can keep planes: upstream's llm_arch_supports_rs_rollback (b11434) ...
_UPSTREAM = frozenset(
    {
        "bailingmoe3",
        "deepseek4",
        "glm5-next",
        "kimi-k3",
        "lfm2",
        "lfm2moe",
        "nemotron_h",
        "nemotron_h_moe",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
    }
)
# ... and by a hook of ours, where there is one slot (native/overlay/llama/srhpm-architectures.h).
_OURS = frozenset({"qwen3next"})

# The drafters for which upstream keeps planes.
_WITH_PLANES = frozenset({"draft-mtp"})


@dataclass(frozen=True)
class Rollback:
    """What one slot keeps beside its current state.

    Attributes:
        planes: states beside it, on its device.
        copies: states in RAM.
    """

    planes: int = 0
    copies: int = 0


def rollback(plan: PlanOutline) -> Rollback:
    """What the plan's server keeps; nothing without a drafter or recurrent layers."""
    draft = plan.choice.draft
    if plan.model.recurrent is None or draft is None:
        return Rollback()
    if draft.type in _WITH_PLANES and plan.model.arch in _UPSTREAM:
        return Rollback(draft.n_max)
    if not may_choose(plan) or plan.rollback == "copy":
        return Rollback(copies=1)
    if draft.n_max <= MOST_PLANES:
        return Rollback(draft.n_max)
    # n-grams always propose all they may
    return Rollback(0 if draft.type == "ngram" else MOST_PLANES, copies=1)


def may_choose(plan: PlanOutline) -> bool:
    """Whether planes or copies can be had: for this model and drafter, with our server."""
    draft, model = plan.choice.draft, plan.model
    return (
        model.recurrent is not None
        and draft is not None
        and draft.type not in _WITH_PLANES
        and (model.arch in _UPSTREAM or (model.arch in _OURS and plan.request.parallel == 1))
        and plan.request.backend == "srhpm"
        and os.environ.get(VARIABLE) not in ("off", "copy")
    )

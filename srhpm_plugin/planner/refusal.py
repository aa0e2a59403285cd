"""The message for a plan that does not fit: what it needs, what is free, what would fit."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ..errors import UserError
from ..plan import DraftChoice, HostRequest
from .hosted import label
from .memory import CPU
from .outline import PlanOutline
from .room import LEAST_CTX, Settled, ctx_limit, largest_ctx, reserve, settle
from .units import size


def command_for(request: HostRequest, **changes: object) -> str:
    """The ``plan`` command with the user's options, some of them changed."""
    words = ["srhpm-plugin", "plan", str(request.model)]
    options = {
        "draft": request.draft if request.draft != "auto" else None,
        "ctx": request.ctx,
        "parallel": request.parallel if request.parallel != 1 else None,
        "threads": request.threads,
        "relax": request.relax or None,
        "kernels": request.kernels,
        "cache-type-k": request.cache_type_k,
        "cache-type-v": request.cache_type_v,
    } | changes
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def refusal(settled: Settled) -> UserError:
    """The error for a plan that is short on some device."""
    plan = settled.plan
    request = plan.request
    needs = " and ".join(
        f"{size(use.total)} on {use.device}, where {size(use.free)} are free "
        f"({size(reserve(use.device, plan.machine))} of it kept in reserve)"
        for use in settled.short
    )
    slots = f" for each of {request.parallel} slots" if request.parallel > 1 else ""
    what = f"{label(plan.model.path)} does not fit"
    why = f"with a context of {plan.ctx}{slots} it needs {needs}"
    best = largest_ctx(plan, ctx_limit(plan))
    if best is not None:
        typed = command_for(request, ctx=best)
        return UserError(what, why, f"the largest context that fits is {best}: {typed}")
    return UserError(what, why, _other_way(plan))


def _other_way(plan: PlanOutline) -> str:
    request = plan.request
    bare = replace(plan, choice=DraftChoice(None, off_reason="no room"))
    if request.draft not in ("none", "ngram") and (best := largest_ctx(bare, ctx_limit(plan))):
        typed = command_for(request, draft="ngram", ctx=best)
        return f"without the drafter a context of {best} fits: {typed}"
    one = replace(bare, request=replace(request, parallel=1))
    if request.parallel > 1 and (best := largest_ctx(one, ctx_limit(plan))):
        typed = command_for(request, parallel=None, ctx=best)
        return f"one slot with a context of {best} fits: {typed}"
    if request.gpu_layers is not None:
        free = replace(bare, request=replace(request, gpu_layers=None))
        if best := largest_ctx(free, ctx_limit(plan)):
            return f"leave the number of GPU layers open, then a context of {best} fits"
    least = settle(replace(bare, ctx=LEAST_CTX))
    over = sum(u.total + reserve(u.device, plan.machine) - u.free for u in least.short)
    weights = sum(u.weights for u in least.memory)
    room = max(0, weights - over)
    quant = next(iter(plan.model.quant_mix), "its type")
    ram = any(u.device == CPU for u in least.short)
    close = "close other programs, or take" if ram else "take"
    if not room:
        return "not even a small context fits: close other programs or take a smaller model"
    return (
        f"not even a context of {LEAST_CTX} fits: {close} a smaller quantization or model, of at "
        f"most {size(room)} (this one is {quant}, {size(weights)})"
    )

"""Which layers lie on the GPUs: the built-in placement step.

A contiguous tail of layers, as upstream's ``-ngl`` gives, or a set of them where that is faster
(:mod:`.sets`); of mixtures of experts all layers but their experts.
"""

from __future__ import annotations

from dataclasses import replace

from ..model import ModelInfo
from .memory import CPU
from .outline import PlacementChoice, PlanOutline
from .room import ask_memory, put, shortage
from .sets import better_than_tail


def all_layers(model: ModelInfo) -> int:
    """The ``-ngl`` that means everything: layers, MTP layers and the head."""
    return model.n_layer + model.n_mtp_layers + 1


def place(plan: PlanOutline) -> PlacementChoice:
    """As much on the GPUs as fits into their free memory, the drafter first: it is read for every
    token it proposes, a layer of the target once per pass."""
    if not plan.machine.gpus or plan.request.gpu_layers == 0:
        why = "the host asked for no layers on the GPU" if plan.machine.gpus else ""
        return PlacementChoice(0, reasons=(why,) if why else ())
    device, reasons = _draft_device(plan)
    whole = all_layers(plan.model)
    asked = plan.request.gpu_layers
    if asked is not None:
        layers = whole if asked < 0 else min(asked, whole)
        return PlacementChoice(layers, 0, device, (*reasons, f"{asked} GPU layers as asked"))
    if plan.kind == "moe":
        for cpu_moe in range(plan.model.n_layer + 1):
            if _fits(plan, whole, cpu_moe, device):
                if cpu_moe:
                    reasons += (f"the experts of {cpu_moe} layers stay in RAM, the rest does not",)
                return PlacementChoice(whole, cpu_moe, device, reasons)
    layers = next((n for n in range(whole, 0, -1) if _fits(plan, n, 0, device)), 0)
    if layers == whole:
        return PlacementChoice(whole, 0, device, reasons)
    better = better_than_tail(plan, layers, device)
    if better is not None:
        return replace(better, reasons=(*reasons, *better.reasons))
    if not layers:
        return PlacementChoice(0, 0, device, (*reasons, "no layer fits into the GPU's free memory"))
    reasons += (f"{layers} of {whole} layers (the head counted) fit on the GPU",)
    return PlacementChoice(layers, 0, device, reasons)


def _fits(plan: PlanOutline, layers: int, cpu_moe: int, device: str) -> bool:
    short = shortage(ask_memory(put(plan, layers, cpu_moe, device)), plan.machine)
    return all(use.device == CPU for use in short)


def _draft_device(plan: PlanOutline) -> tuple[str, tuple[str, ...]]:
    draft = plan.choice.draft
    if draft is None or draft.type != "draft-simple":
        return CPU, ()
    best = max(plan.machine.gpus, key=lambda g: g.free)
    if _fits(plan, 0, 0, best.name):
        return best.name, (f"the drafter lies on {best.name}",)
    return CPU, (f"the drafter stays in RAM: {best.name} has no room for it",)

"""What each layer and the head cost the CPU in a pass: what a GPU that holds them saves.

By the calibration where it holds for the plan, else by bytes read. What a GPU itself takes is in
:mod:`.gpus`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...calibrate import Calibration, current
from ...calibrate.data import EngineName
from ...packing import EXPERTS
from ..kv import row_bytes, state_bytes
from ..outline import PlanOutline
from ..weights import weight_map
from . import passes
from .costs import TYPICAL_CTX
from .passes import Unknown

# What is assumed of a machine that was not measured: RAM as fast as a laptop's.
_BYTES_PER_MS = 20e6

CROSSING_MS = 0.05
"""Milliseconds of a change between CPU and GPU where none was measured: what launching and waiting
for a kernel takes on common drivers; what is copied is small."""


@dataclass(frozen=True)
class PlaceCosts:
    """Milliseconds on the CPU.

    Attributes:
        ms: per layer, MTP layers next, the head last.
        measured: by the calibration of this machine.
    """

    ms: tuple[float, ...]
    measured: bool


def place_costs(plan: PlanOutline) -> PlaceCosts:
    """The costs of a round: of one pass of the target over all that is verified, and of those of an
    MTP head, which read its layer and the target's head for each token that they propose. The
    experts of the first ``cpu_moe`` layers stay in RAM wherever their layer is: they cost nothing.
    """
    draft = plan.choice.draft
    drafted = draft.n_min if draft is not None and draft.type != "ngram" else 0
    mtp = drafted if draft is not None and draft.type == "draft-mtp" else 0
    calibration = _calibration(plan)
    if calibration is not None:
        try:
            return PlaceCosts(_by_calibration(plan, calibration, 1 + drafted, mtp), measured=True)
        except Unknown:
            pass
    return PlaceCosts(_by_bytes(plan, mtp), measured=False)


def _calibration(plan: PlanOutline) -> Calibration | None:
    calibration = current(plan.machine) if plan.request.backend == "srhpm" else None
    if calibration is None or calibration.threads != plan.threads:
        return None
    return calibration if (plan.cache_type_k, plan.cache_type_v) == ("f16", "f16") else None


def _by_calibration(
    plan: PlanOutline, calibration: Calibration, m: int, mtp: int
) -> tuple[float, ...]:
    model = plan.model
    engine: EngineName = "ours" if plan.packed else "stock"
    costs = [0.0] * (model.n_layer + model.n_mtp_layers + 1)
    for tensor in passes.factors(model):
        at = -1 if tensor.layer is None else tensor.layer
        if not (0 <= at < plan.cpu_moe and EXPERTS.search(tensor.name)):
            costs[at] += passes.product_ms(tensor, model, calibration, engine, m)
    overhead = passes.overhead_ms(1, calibration, engine, m)
    overhead -= passes.overhead_ms(0, calibration, engine, m)
    for i in range(model.n_layer):
        costs[i] += overhead
        costs[i] += passes.layer_attention_ms(model, calibration, engine, i, m, TYPICAL_CTX)
    if mtp:
        for tensor in passes.factors(model, mtp=True):
            at = -1 if tensor.layer is None else tensor.layer
            costs[at] += mtp * passes.product_ms(tensor, model, calibration, engine, 1)
    return tuple(costs)


def _by_bytes(plan: PlanOutline, mtp: int) -> tuple[float, ...]:
    model = plan.model
    w = weight_map(model, plan.packed)
    share = model.n_expert_used / model.n_expert if model.n_expert else 1.0
    costs: list[float] = []
    for i, (nbytes, experts) in enumerate(zip(w.layers, w.experts, strict=True)):
        read = nbytes - experts * (1.0 if i < plan.cpu_moe else 1 - share)
        if i >= model.n_layer:
            costs.append(mtp * read)
            continue
        heads = model.n_head_kv[i]
        row = row_bytes(plan.cache_type_k, heads * model.key_length)
        row += row_bytes(plan.cache_type_v, heads * model.value_length)
        # A state is read and written.
        costs.append(read + TYPICAL_CTX * row + 2 * state_bytes(model, i))
    costs.append((1 + mtp) * (w.head + w.tied))
    return tuple(c / _BYTES_PER_MS for c in costs)

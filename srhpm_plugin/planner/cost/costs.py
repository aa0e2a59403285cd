"""The costs of a plan's passes: the built-in step. Plans that lie in RAM as a whole are known; what
is measured of GPUs (:mod:`.gpus`) places layers, it does not make a pass's time yet."""

from __future__ import annotations

from collections.abc import Callable

from ...calibrate import Calibration, current, load, stale
from ...calibrate.data import EngineName
from ...machine.types import Machine
from ...model import ModelInfo
from ...plan import LaunchPlan
from ..headers import read_header
from . import passes
from .passes import Unknown
from .types import WIDEST, Costs

TYPICAL_CTX = 256
"""Tokens in the cache for which speeds are said: an answer to a short question."""


def costs(plan: LaunchPlan, machine: Machine) -> Costs | None:
    """See :func:`why_unknown` for when it is ``None``."""
    calibration = current(machine)
    if calibration is None or why_unknown(plan, machine) is not None:
        return None
    return costs_at(plan, machine, calibration, TYPICAL_CTX)


def why_unknown(plan: LaunchPlan, machine: Machine) -> str | None:
    """Why the costs of a plan are not known, in words; ``None`` if they are."""
    calibration = load()
    if calibration is None:
        return "this machine was not measured yet: type srhpm-plugin calibrate"
    why = stale(calibration, machine)
    if why:
        return (
            f"what was measured of this machine no longer holds: {why}; type srhpm-plugin calibrate"
        )
    if plan.backend != "srhpm":
        return f"speeds are predicted for the backend srhpm only, not for {plan.backend}"
    if plan.gpu_layers or (plan.draft is not None and plan.draft.device != "CPU"):
        return "speeds are predicted for plans in RAM only, and parts of this one lie on a GPU"
    if plan.threads != calibration.threads:
        return f"this machine was measured with {calibration.threads} threads"
    if (plan.cache_type_k, plan.cache_type_v) != ("f16", "f16"):
        return "attention was measured with an f16 cache only"
    try:
        costs_at(plan, machine, calibration, TYPICAL_CTX)
    except Unknown as unknown:
        return f"{unknown} were not measured on this machine"
    return None


def costs_at(plan: LaunchPlan, machine: Machine, calibration: Calibration, ctx: int) -> Costs:
    """The costs with ``ctx`` tokens in the cache.

    Raises:
        Unknown: a weight type was not measured.
    """
    packed = _packed(plan, machine)
    model, serving = plan.model, calibration.serving
    sample = serving.sample * model.n_vocab / 1000
    widths = range(1, WIDEST + 1)

    def table(one: Callable[[int], float]) -> dict[int, float]:
        return passes.table({m: one(m) for m in widths})

    # With our kernels off passes are upstream's, less the paths whose results depend on the width.
    engine: EngineName = "ours" if packed else "stock"

    def target(m: int) -> float:
        return passes.pass_ms(model, calibration, engine, m, ctx) + m * sample

    stock = passes.pass_ms(model, calibration, "stock", 1, ctx) + sample
    build = calibration.passes["ours"].build
    drafter, layers = None, 0
    small: ModelInfo | None = None
    if plan.draft is not None and plan.draft.type == "draft-simple" and plan.draft.path:
        small = read_header(plan.draft.path)
        header = small
        drafter = table(lambda m: passes.pass_ms(header, calibration, engine, m, ctx))
        layers = small.n_layer
    elif plan.draft is not None and plan.draft.type == "draft-mtp":
        drafter = table(lambda m: passes.mtp_pass_ms(model, calibration, engine, m, ctx))
        layers = 1
    return Costs(
        ctx=ctx,
        target=table(target),
        drafter=drafter,
        stock=stock + serving.step,
        step=serving.step,
        drafted=serving.draft * (small or model).n_vocab / 1000,
        draft=2 * layers * build,
        rebuild=model.n_layer * build,
        again=plan.draft is not None and plan.draft.type != "draft-simple",
        gaps=_gaps(model, plan, packed),
    )


def _packed(plan: LaunchPlan, machine: Machine) -> bool:
    """Whether our kernels run in the plan."""
    from ...plugins import plugins

    ask = getattr(plugins().backend(plan.backend), "kernels", None)
    if ask is None:
        return False
    return ask(tuple(plan.model.quant_mix), plan.kernels, machine.cpu.isa).isa is not None


def _gaps(model: ModelInfo, plan: LaunchPlan, packed: bool) -> tuple[str, ...]:
    gaps = [] if packed else ["upstream's kernels where passes must be exact"]
    if model.n_expert:
        gaps.append("experts")
    if model.recurrent is not None:
        gaps.append("recurrent layers")
    if f"{model.arch}.attention.key_length_mla" in model.metadata:
        gaps.append("latent attention")
    if plan.draft is not None and plan.draft.type == "draft-mtp":
        gaps.append("the MTP head")
    if plan.mmproj is not None:
        gaps.append("images")
    return tuple(gaps)

"""What layers cost on a plan's GPUs, and changes between CPU and GPU: measured, else assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...calibrate import GpuSpeed, current, fit, gpu_speed
from ...calibrate.data import Table
from ...packing import EXPERTS
from ..outline import PlanOutline
from . import passes
from .places import CROSSING_MS

_F32 = 4


@dataclass(frozen=True)
class GpuCosts:
    """Milliseconds of a round, as :class:`.places.PlaceCosts` has them of the CPU.

    Attributes:
        crossing: of one change of side in a pass, the activations copied.
        ms: per place; nothing where no product was measured.
        crossing_measured, measured: whether the one and the others were.
    """

    crossing: float
    ms: tuple[float, ...]
    crossing_measured: bool = False
    measured: bool = False


def gpu_costs(plan: PlanOutline) -> GpuCosts:
    """The costs on the plan's GPUs, of several the slowest one's. What attention reads of the cache
    and what small operations take there is not counted."""
    model = plan.model
    nothing = (0.0,) * (model.n_layer + model.n_mtp_layers + 1)
    speeds = _speeds(plan)
    if not speeds:
        return GpuCosts(CROSSING_MS, nothing)
    draft = plan.choice.draft
    drafted = draft.n_min if draft is not None and draft.type != "ngram" else 0
    nbytes = model.n_embd * (1 + drafted) * _F32
    crossings = [one for speed in speeds if (one := crossing_ms(speed, nbytes)) is not None]
    known = len(crossings) == len(speeds)
    crossing = max(crossings) if known else CROSSING_MS
    if not all(speed.products for speed in speeds):
        return GpuCosts(crossing, nothing, known)
    mtp = drafted if draft is not None and draft.type == "draft-mtp" else 0
    each = [_places_ms(plan, speed.products, 1 + drafted, mtp, len(nothing)) for speed in speeds]
    return GpuCosts(crossing, tuple(map(max, zip(*each, strict=True))), known, measured=True)


def crossing_ms(speed: GpuSpeed, nbytes: int) -> float | None:
    """A change of side that copies so many bytes, by the mean of both directions; ``None`` where
    that was not measured."""
    up, down = speed.up_bytes_s, speed.down_bytes_s
    if speed.crossing_ms is None or not up or not down:
        return None
    return speed.crossing_ms + 1e3 * nbytes * (1 / up + 1 / down) / 2


def _speeds(plan: PlanOutline) -> list[GpuSpeed]:
    """Those of all GPUs of this machine, or none."""
    calibration = current(plan.machine)
    if calibration is None:
        return []
    here = [gpu_speed(calibration, gpu) for gpu in plan.machine.gpus if not gpu.link]
    found = [speed for speed in here if speed is not None]
    return found if len(found) == len(here) else []


def _places_ms(
    plan: PlanOutline, products: Mapping[str, Table], m: int, mtp: int, places: int
) -> list[float]:
    model = plan.model
    costs = [0.0] * places
    for tensor in passes.factors(model):
        at = -1 if tensor.layer is None else tensor.layer
        if not (0 <= at < plan.cpu_moe and EXPERTS.search(tensor.name)):
            part, tokens = passes.touched(tensor, model, m)
            costs[at] += part * tensor.nbytes * _ns(products, tensor.type, tokens) / 1e6
    if mtp:
        for tensor in passes.factors(model, mtp=True):
            at = -1 if tensor.layer is None else tensor.layer
            part, tokens = passes.touched(tensor, model, 1)
            costs[at] += mtp * part * tensor.nbytes * _ns(products, tensor.type, tokens) / 1e6
    return costs


def _ns(products: Mapping[str, Table], kind: str, m: float) -> float:
    """Nanoseconds per byte; a type that was not measured costs what the others do on average: with
    few tokens a GPU waits for its memory, whatever the type."""
    tables: Sequence[Table] = [products[kind]] if kind in products else list(products.values())
    return fmean(fit.at(table, m) for table in tables)

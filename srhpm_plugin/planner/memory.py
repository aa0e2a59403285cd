"""Bytes per part and device for a plan in the making: the built-in memory step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..machine.types import Gpu
from ..model import ModelInfo
from ..plan import DraftChoice, MemoryUse, Placement
from .compute import (
    BATCH,
    Visitors,
    beside_gpu_bytes,
    compute_bytes,
    mtp_bytes,
    output_bytes,
)
from .kv import kv_bytes, state_bytes
from .outline import PlanOutline
from .projector import projector_of
from .rollback import rollback
from .units import MIB
from .weights import WeightMap, weight_map

CPU = "CPU"


@dataclass
class _Device:
    weights: int = 0
    kv: int = 0
    compute: int = 0
    draft: int = 0
    rollback: int = 0
    projector: int = 0
    cache: int = 0
    layers: list[int] = field(default_factory=list)
    head: bool = False


def layer_devices(
    model: ModelInfo, gpus: tuple[Gpu, ...], gpu_layers: int, layer_set: tuple[int, ...] = ()
) -> list[str]:
    """The device of every layer (MTP layers included) and, last, of the head.

    llama.cpp's rule where there is no ``layer_set``: the last ``gpu_layers`` go to the GPUs, split
    by their free memory.
    """
    if layer_set:
        return [CPU if at < 0 else gpus[at].name for at in layer_set]
    n = model.n_layer + model.n_mtp_layers + 1
    on_gpu = min(gpu_layers, n) if gpus else 0
    devices = [CPU] * (n - on_gpu)
    free = sum(g.free for g in gpus) or 1
    ends, so_far = [], 0
    for gpu in gpus:
        so_far += gpu.free
        ends.append(so_far / free)
    for i in range(on_gpu):
        at = next((k for k, end in enumerate(ends) if i / on_gpu < end), len(gpus) - 1)
        devices.append(gpus[at].name)
    return devices


def outputs_per_pass(choice: DraftChoice, parallel: int) -> int:
    """Rows of logits one pass may need: the verified tokens of every slot."""
    return parallel * (1 + (choice.draft.n_max if choice.draft else 0))


def devices_of(plan: PlanOutline) -> list[str]:
    """The device of every layer and, last, of the head of a placed plan."""
    return layer_devices(plan.model, plan.machine.gpus, plan.gpu_layers, plan.layer_set)


def memory(plan: PlanOutline) -> tuple[MemoryUse, ...]:
    """One entry per device, the CPU first; GPUs that hold nothing are listed too."""
    machine, request = plan.machine, plan.request
    at = devices_of(plan)
    rows = {name: _Device() for name in (CPU, *(g.name for g in machine.gpus))}
    _target(plan, at, rows)
    _drafter(plan, at, rows)
    if request.mmproj is not None:
        projector = projector_of(request.mmproj)
        host = machine.gpus[0].name if plan.gpu_layers and machine.gpus else CPU
        rows[host].projector = projector.weights + projector.compute
        rows[CPU].projector += projector.handed if host != CPU else 0
    rows[CPU].cache = plan.cache_ram_mib * MIB + checkpoint_bytes(plan) * plan.ctx_checkpoints
    free = {g.name: g.free for g in machine.gpus} | {CPU: machine.memory.free}
    return tuple(
        MemoryUse(
            device=name,
            weights=r.weights,
            kv=r.kv,
            compute=r.compute,
            draft=r.draft,
            rollback=r.rollback,
            projector=r.projector,
            cache=r.cache,
            free=free[name],
        )
        for name, r in rows.items()
    )


def _kv(plan: PlanOutline, layer: int) -> int:
    types = plan.cache_type_k, plan.cache_type_v
    return kv_bytes(plan.model, layer, plan.ctx, plan.request.parallel, types)


def _target(plan: PlanOutline, at: list[str], rows: dict[str, _Device]) -> None:
    model, parallel = plan.model, plan.request.parallel
    maps = _maps(plan)
    kept = rollback(plan)
    rows[CPU].weights += maps(CPU).input
    for i in range(model.n_layer):
        w = maps(at[i])
        rows[at[i]].weights += w.layers[i]
        if i < plan.cpu_moe:
            rows[at[i]].weights -= w.experts[i]
            rows[CPU].weights += maps(CPU).experts[i]
        state = state_bytes(model, i) * parallel
        rows[at[i]].kv += _kv(plan, i) + state
        rows[at[i]].rollback += kept.planes * state
        rows[CPU].rollback += kept.copies * state
        rows[at[i]].layers.append(i)
    rows[at[-1]].head = True
    rows[at[-1]].weights += _head(maps(at[-1]), at[-1])
    outputs = outputs_per_pass(plan.choice, parallel)
    host = _borrower(plan)
    for name, row in rows.items():
        if (row.layers or row.head or name == host) and (name != CPU or host is None):
            row.compute += compute_bytes(
                model,
                plan.ctx,
                parallel,
                outputs,
                head=row.head,
                planes=kept.planes,
                visitors=_visitors(plan, at) if name == host else Visitors(),
                embeds=CPU in at,
            )
    if host is not None or not rows[CPU].compute:
        mine = rows[CPU].layers
        rows[CPU].compute += beside_gpu_bytes(
            model,
            plan.ctx,
            parallel,
            attends=any(_kv(plan, i) for i in mine),
            recurs=any(state_bytes(model, i) for i in mine),
            planes=kept.planes,
        )
    rows[CPU].compute += output_bytes(model, outputs)


def _maps(plan: PlanOutline) -> Callable[[str], WeightMap]:
    """The target's weights as a device holds them: only those in RAM are packed."""
    return lambda device: weight_map(plan.model, plan.packed and device == CPU)


def _borrower(plan: PlanOutline) -> str | None:
    """The GPU that multiplies by the weights in RAM for a prompt: the first, if any is used, and no
    worker, to which a prompt's weights would take longer than the prompt."""
    first = plan.machine.gpus[0] if plan.gpu_layers and plan.machine.gpus else None
    return first.name if first is not None and not first.link else None


def _visitors(plan: PlanOutline, at: list[str]) -> Visitors:
    """Weights visit a GPU in the file's layout, caches whole."""
    w, n = weight_map(plan.model), plan.model.n_layer
    in_ram = [i for i in range(n) if at[i] == CPU]
    return Visitors(
        mixing=max((w.largest_mixing[i] for i in in_ram), default=0),
        dense=max((w.largest_dense[i] for i in in_ram), default=0),
        experts=max((w.largest_expert[i] for i in {*in_ram, *range(plan.cpu_moe)}), default=0),
        cache=max((_kv(plan, i) for i in in_ram), default=0),
    )


def _drafter(plan: PlanOutline, at: list[str], rows: dict[str, _Device]) -> None:
    draft, parallel = plan.choice.draft, plan.request.parallel
    if draft is None:
        return
    if draft.type == "draft-mtp":
        for i in range(plan.model.n_layer, len(weight_map(plan.model).layers)):
            rows[at[i]].draft += _maps(plan)(at[i]).layers[i] + _kv(plan, i)
        _mtp_compute(plan, at, rows)
        # The target's hidden states, handed over for a whole batch.
        rows[CPU].draft += BATCH * plan.model.n_embd * 4
    elif plan.choice.model is not None:
        drafter = plan.choice.model
        packed = plan.packed and draft.device == CPU
        w = weight_map(drafter, packed)
        rows[draft.device].draft += _head(w, draft.device)
        rows[draft.device].draft += drafter_bytes(
            drafter, plan.ctx, parallel, packed, embeds=draft.device == CPU
        )
        rows[CPU].draft += w.input + output_bytes(drafter, parallel)
        if draft.device != CPU:
            rows[CPU].draft += beside_gpu_bytes(drafter, plan.ctx, parallel)


def _mtp_compute(plan: PlanOutline, at: list[str], rows: dict[str, _Device]) -> None:
    """The buffers of the context in which MTP layers draft."""
    model, parallel, first = plan.model, plan.request.parallel, plan.model.n_layer
    layer = at[first] if model.n_mtp_layers else at[-1]
    on = _borrower(plan) if layer == CPU else layer
    visiting = _kv(plan, first) if on is not None and layer == CPU else 0
    rows[on or CPU].draft += mtp_bytes(model, plan.ctx, parallel, visiting)
    if on is not None:
        rows[CPU].draft += beside_gpu_bytes(model, plan.ctx, parallel, attends=layer == CPU, rows=2)


def _head(w: WeightMap, device: str) -> int:
    return w.head + (w.copy if device == CPU else w.tied)


def drafter_bytes(
    drafter: ModelInfo, ctx: int, parallel: int, packed: bool = False, embeds: bool = True
) -> int:
    """Layers, KV, states and compute buffer of a drafter. Its context is as long as the target's,
    its KV f16, and a recurrent one keeps a second copy of its state."""
    total = sum(weight_map(drafter, packed).layers[: drafter.n_layer])
    for i in range(drafter.n_layer):
        total += kv_bytes(drafter, i, ctx, parallel, ("f16", "f16"))
        total += state_bytes(drafter, i) * parallel * 2
    return total + compute_bytes(drafter, ctx, parallel, parallel, embeds=embeds)


def checkpoint_bytes(plan: PlanOutline) -> int:
    """One context checkpoint of every slot: what cannot be rolled back by position, i.e. the
    recurrent states and the windows' KV. 0 for models that need none."""
    one = sum(state_bytes(plan.model, i) for i in range(plan.model.n_layer))
    one *= plan.request.parallel
    return one + sum(_kv(plan, i) for i in plan.model.window_layers)


def place_bytes(plan: PlanOutline, place: int) -> int:
    """What a layer, or after them the head, adds to the GPU that holds it. (A device has a compute
    buffer besides, which is none of a layer's.)"""
    model, w = plan.model, weight_map(plan.model)
    if place == len(w.layers):
        return w.head + w.tied
    if place >= model.n_layer:
        mtp = plan.choice.draft is not None and plan.choice.draft.type == "draft-mtp"
        return w.layers[place] + _kv(plan, place) if mtp else 0
    states = (1 + rollback(plan).planes) * plan.request.parallel
    in_ram = w.experts[place] if place < plan.cpu_moe else 0
    return w.layers[place] - in_ram + _kv(plan, place) + states * state_bytes(model, place)


def placements(plan: PlanOutline, packed: bool) -> tuple[Placement, ...]:
    """Which layers lie where, in words a user reads, with their weight bytes."""
    model, cpu_moe, at = plan.model, plan.cpu_moe, devices_of(plan)
    found: list[Placement] = []
    for device in dict.fromkeys((CPU, *at)):
        w = weight_map(model, packed and device == CPU)
        mine = [i for i in range(model.n_layer) if at[i] == device]
        names, nbytes = ranges(mine), sum(w.layers[i] for i in mine)
        away = sum(w.experts[i] for i in mine if i < cpu_moe) if device != CPU else 0
        if device == CPU:
            names = ("embd", *names)
            nbytes += w.input
            outside = [i for i in range(min(cpu_moe, model.n_layer)) if at[i] != CPU]
            if outside:
                names += tuple(f"experts {r}" for r in ranges(outside))
                nbytes += sum(w.experts[i] for i in outside)
        if at[-1] == device:
            names += ("output",)
            nbytes += _head(w, device)
        found.append(Placement(device, names, nbytes - away))
    return tuple(found)


def ranges(numbers: list[int]) -> tuple[str, ...]:
    """``[0, 1, 2, 5]`` as ``("0-2", "5")``."""
    out: list[str] = []
    for n in numbers:
        first, _, last = out[-1].partition("-") if out else ("", "", "")
        if out and n == int(last or first) + 1:
            out[-1] = f"{first}-{n}"
        else:
            out.append(str(n))
    return tuple(out)

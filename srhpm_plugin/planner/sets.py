"""A set of layers for the GPUs where it is faster than the last ones that fit.

Layers differ in what they cost the CPU per byte of GPU memory: those with attention take their
cache along, of which a pass reads only what is filled, recurrent ones a small state; types differ
by layer; the head is read once more for each token that an MTP head proposes. Of mixtures of
experts, sets of whole layers are tried and sets of layers whose experts stay in RAM.
"""

from __future__ import annotations

from dataclasses import replace

from .cost.gpus import GpuCosts, gpu_costs
from .cost.places import PlaceCosts, place_costs
from .layersets import CPU, LayerSet, Place, best_set, bound_of, gain_of
from .memory import devices_of, place_bytes
from .outline import PlacementChoice, PlanOutline
from .room import ask_memory, put, reserve, shortage

# A set must save so much of a pass more than the last layers: costs are known no better, and
# everybody knows how -ngl behaves.
LEAST_GAIN = 0.02

# What a device needs besides its layers depends on which those are, a little. Each search is told
# what the last one's result needed.
_ROUNDS = 4


def better_than_tail(
    plan: PlanOutline, tail_layers: int, draft_device: str
) -> PlacementChoice | None:
    """A faster set than the last ``tail_layers``, which are as many as fit, or no layer at all;
    ``None`` where there is none, or the server can place only the last ones."""
    if not _can_place_sets(plan):
        return None
    costs = place_costs(plan)
    total = sum(costs.ms)
    tail = put(plan, tail_layers, 0, draft_device)
    places, gpu = _places(plan)
    gain = gain_of(_indices(tail), places, gpu.crossing)
    least = max(gain, 0.0) + LEAST_GAIN * total
    best, best_moe = None, 0
    for cpu_moe in (0, plan.model.n_layer) if plan.model.n_expert else (0,):
        found = _search(plan, tail, draft_device, cpu_moe, least)
        if found is not None and found.gain >= least:
            best, best_moe, least = found, cpu_moe, found.gain
    if best is None:
        return _none(plan, tail_layers, draft_device, -gain / total)
    by = "as measured" if costs.measured else "by bytes read"
    more = f", no set more than {best.bound / total:.0%}" if best.bound > best.gain else ""
    what = "layers but their experts" if best_moe else "layers"
    words = (
        f"{_count(best)} of {len(costs.ms)} {what} (the head counted) lie on the GPU, those that "
        "cost the CPU most for the memory they take there: they save "
        f"{best.gain / total:.0%} of a pass ({by}), the last {tail_layers} would "
        f"{gain / total:.0%}{more}; {_basis(costs, gpu)}"
    )
    return PlacementChoice(_count(best), best_moe, draft_device, (words,), best.devices)


def _none(
    plan: PlanOutline, tail_layers: int, draft_device: str, loss: float
) -> PlacementChoice | None:
    """No layer on a GPU that was measured to be slower than the CPU, if there is room in RAM."""
    bare = put(plan, 0, 0, draft_device)
    if loss < LEAST_GAIN or shortage(ask_memory(bare), plan.machine):
        return None
    words = (
        f"no layer lies on the GPU: with the last {tail_layers}, which would fit, a pass takes "
        f"{loss:.0%} longer than without (as measured); --gpu-layers {tail_layers} puts them there"
    )
    return PlacementChoice(0, 0, draft_device, (words,))


def _basis(costs: PlaceCosts, gpu: GpuCosts) -> str:
    """What is known of the GPU itself."""
    crossing = "measured" if gpu.crossing_measured else "assumed"
    said = f"a change between CPU and GPU takes {gpu.crossing:.3f} ms ({crossing})"
    if not gpu.measured or not costs.measured:
        said += ", what a layer takes on the GPU is assumed to be nothing"
    if not gpu.crossing_measured or not gpu.measured:
        said += "; to have it measured type: srhpm-plugin calibrate"
    return said


def _places(plan: PlanOutline) -> tuple[list[Place], GpuCosts]:
    """What each place saves: its time on the CPU less that on the GPU, where both are measured.
    With experts in RAM each layer on a GPU is left and entered again."""
    costs, gpu = place_costs(plan), gpu_costs(plan)
    there = gpu.ms if costs.measured else (0.0,) * len(gpu.ms)
    moe = 2 * gpu.crossing
    return [
        Place(here - away - (moe if i < plan.cpu_moe else 0.0), place_bytes(plan, i))
        for i, (here, away) in enumerate(zip(costs.ms, there, strict=True))
    ], gpu


def _can_place_sets(plan: PlanOutline) -> bool:
    from ..plugins import plugins

    ask = getattr(plugins().backend(plan.request.backend), "layer_sets", None)
    return ask is not None and bool(ask())


def _search(
    plan: PlanOutline, tail: PlanOutline, draft_device: str, cpu_moe: int, least: float
) -> LayerSet | None:
    """The best set that fits by the memory step, if any gains ``least``."""
    start = replace(plan, cpu_moe=cpu_moe)
    places, gpu = _places(start)
    crossing = 0.0 if cpu_moe else gpu.crossing
    best: LayerSet | None = None
    needed, seen = _besides(tail), set[tuple[int, ...]]()
    for _ in range(_ROUNDS):
        rooms = [
            max(0, gpu.free - reserve(gpu.name, plan.machine) - needed[gpu.name])
            for gpu in plan.machine.gpus
        ]
        if bound_of(places, sum(rooms), crossing) < least:
            break  # of like layers, at most a part of one more would fit
        found = best_set(places, rooms, crossing)
        if found.devices in seen or all(at == CPU for at in found.devices):
            break
        seen.add(found.devices)
        placed = put(plan, _count(found), cpu_moe, draft_device, found.devices)
        fits = all(use.device == "CPU" for use in shortage(ask_memory(placed), plan.machine))
        if fits and (best is None or found.gain > best.gain):
            best = found
        needed = _besides(placed)
    return best


def _besides(placed: PlanOutline) -> dict[str, int]:
    """Bytes that each device holds besides what its layers add."""
    held = {use.device: use.total for use in ask_memory(placed)}
    for i, device in enumerate(devices_of(placed)):
        if device != "CPU":
            held[device] -= place_bytes(placed, i)
    return held


def _indices(placed: PlanOutline) -> tuple[int, ...]:
    names = {gpu.name: i for i, gpu in enumerate(placed.machine.gpus)}
    return tuple(names.get(device, CPU) for device in devices_of(placed))


def _count(found: LayerSet) -> int:
    return sum(at != CPU for at in found.devices)

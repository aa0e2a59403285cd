"""Which layers lie on RPC workers: other machines, reached over a network.

A worker is no GPU: it may read its memory no faster than this machine, and each pass waits for the
network when it enters and leaves a run of layers. So layers go there only where that is faster by
what was measured of worker and link, or where there is no room for them here. The head stays: its
logits would cross the network in every pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..machine.types import Gpu, Link
from .cost.places import place_costs
from .memory import CPU, devices_of
from .outline import PlacementChoice, PlanOutline
from .place import place
from .room import ask_memory, put, shortage
from .units import size
from .weights import weight_map

_F32 = 4


@dataclass(frozen=True)
class _Run:
    """Layers ``first`` to ``last`` on the worker with the index ``gpu``."""

    gpu: int
    first: int
    last: int


def has_workers(plan: PlanOutline) -> bool:
    """Whether any device is another machine's."""
    return any(gpu.link for gpu in plan.machine.gpus)


def crossing_ms(link: Link, width: int, tokens: int) -> float:
    """One run of layers on a worker: the activations of ``tokens`` there and back, and waiting for
    an answer to each."""
    nbytes = width * tokens * _F32
    seconds = nbytes / link.up_bytes_s + nbytes / link.down_bytes_s
    return 2 * link.round_trip_ms + 1e3 * seconds


def place_with_workers(plan: PlanOutline) -> PlacementChoice:
    """Places the layers on the GPUs of this machine first, then some of the rest on workers."""
    here = tuple(gpu for gpu in plan.machine.gpus if not gpu.link)
    asked = plan.request.gpu_layers
    request = replace(plan.request, gpu_layers=asked if here else None)
    bare = replace(plan, request=request, machine=replace(plan.machine, gpus=here))
    local = place(bare)
    at = _indices(bare, local)
    rest = [i for i in range(plan.model.n_layer) if at[i] < 0]
    start = put(plan, local.gpu_layers, local.cpu_moe, local.draft_device, tuple(at))
    runs, why = _choose(start, rest, asked if not here else None)
    if not runs:
        layer_set = tuple(at) if local.gpu_layers else ()  # said, as workers count as GPUs
        return replace(local, layer_set=layer_set, reasons=(*local.reasons, *why))
    for run in runs:
        at[run.first : run.last + 1] = [run.gpu] * (run.last + 1 - run.first)
    count = sum(device >= 0 for device in at)
    reasons = (*local.reasons, *why)
    return PlacementChoice(count, local.cpu_moe, local.draft_device, reasons, tuple(at))


def _indices(plan: PlanOutline, local: PlacementChoice) -> list[int]:
    """Which of this machine's GPUs holds each layer and the head; they come before the workers."""
    placed = put(plan, local.gpu_layers, local.cpu_moe, local.draft_device, local.layer_set)
    names = [CPU, *(gpu.name for gpu in plan.machine.gpus)]
    return [names.index(name) - 1 for name in devices_of(placed)]


def _choose(
    plan: PlanOutline, rest: list[int], asked: int | None
) -> tuple[list[_Run], tuple[str, ...]]:
    """Runs of the layers in ``rest``, from its end: the fastest worker last, next to the GPUs."""
    here = place_costs(plan)
    costs = here.ms
    width, tokens = plan.model.n_embd, 1 + (plan.choice.draft.n_min if plan.choice.draft else 0)
    workers = [(i, gpu) for i, gpu in enumerate(plan.machine.gpus) if gpu.link]
    workers.sort(key=lambda w: -w[1].link.read_bytes_s if w[1].link else 0.0)
    w = weight_map(plan.model)
    runs: list[_Run] = []
    reasons: list[str] = []
    left = list(rest)
    for i, gpu in workers:
        link = gpu.link
        assert link is not None
        wanted = None if asked is None else max(0, asked - (len(rest) - len(left)))
        block = _block(left)
        if not block or wanted == 0:
            break
        room = _room(plan, runs, i, block)
        cross = crossing_ms(link, width, tokens)
        there = {j: 1e3 * w.layers[j] / link.read_bytes_s for j in block}
        gain = sum(costs[j] - there[j] for j in block[len(block) - room :]) - cross
        needed = 0 if wanted is not None else _needed(plan, runs, i, block, room)
        take = min(room, wanted) if wanted is not None else room if gain > 0 else needed
        reasons.append(_words(gpu, take, room, gain, cross, asked=wanted is not None))
        if take:
            runs.append(_Run(i, block[-take], block[-1]))
            left = left[: len(left) - take]
    if reasons and asked is None and not here.measured:
        reasons.append(
            "what a layer takes here is assumed from its bytes; to have it measured type: "
            "srhpm-plugin calibrate"
        )
    return runs, tuple(reasons)


def _block(layers: list[int]) -> list[int]:
    """The last layers that follow one another."""
    block: list[int] = []
    for layer in reversed(layers):
        if block and layer != block[0] - 1:
            break
        block.insert(0, layer)
    return block


def _with(plan: PlanOutline, runs: list[_Run], run: _Run | None) -> PlanOutline:
    at = list(plan.layer_set)
    for r in [*runs, *([run] if run else [])]:
        at[r.first : r.last + 1] = [r.gpu] * (r.last + 1 - r.first)
    draft = plan.choice.draft
    count = sum(device >= 0 for device in at)
    return put(plan, count, plan.cpu_moe, draft.device if draft else CPU, tuple(at))


def _short(plan: PlanOutline) -> set[str]:
    return {use.device for use in shortage(ask_memory(plan), plan.machine)}


def _room(plan: PlanOutline, runs: list[_Run], gpu: int, block: list[int]) -> int:
    """How many of the block's last layers the worker can hold."""
    name = plan.machine.gpus[gpu].name
    low, high = 0, len(block)
    while low < high:
        middle = (low + high + 1) // 2
        tried = _with(plan, runs, _Run(gpu, block[-middle], block[-1]))
        low, high = (middle, high) if name not in _short(tried) else (low, middle - 1)
    return low


def _needed(plan: PlanOutline, runs: list[_Run], gpu: int, block: list[int], room: int) -> int:
    """How few of them must go there so that this machine's RAM suffices; all that can where it does
    not even then."""
    if CPU not in _short(_with(plan, runs, None)):
        return 0
    for take in range(1, room + 1):
        if CPU not in _short(_with(plan, runs, _Run(gpu, block[-take], block[-1]))):
            return take
    return room


def _words(gpu: Gpu, take: int, room: int, gain: float, cross: float, *, asked: bool) -> str:
    link = gpu.link
    assert link is not None
    measured = (
        f"reads {size(round(link.read_bytes_s))}/s, answers in {link.round_trip_ms:.2f} ms, "
        f"{size(round(min(link.up_bytes_s, link.down_bytes_s)))}/s over the network: "
        f"{cross:.1f} ms a pass"
    )
    where = f"RPC worker {link.endpoint} ({gpu.name}; {measured})"
    if not take and not room:
        return f"{where}: no layer fits into its free memory ({size(gpu.free)})"
    if not take:
        return f"{where}: not used, a pass would take {-gain:.1f} ms more with {room} layers there"
    words = f"{take} layer{'s' * (take != 1)}"
    if asked:
        return f"{where}: {words} as asked"
    if gain > 0:
        return f"{where}: {words}, a pass takes {gain:.1f} ms less than here"
    return f"{where}: {words} for which there is no room here; a pass takes longer for it"

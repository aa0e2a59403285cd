"""Where a model's bytes are: input table, layers, experts, head."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..model import ModelInfo, Tensor

# The tensors that `--cpu-moe` and `--n-cpu-moe` keep on the CPU.
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch)?exps\.")


@dataclass(frozen=True)
class WeightMap:
    """Bytes of the weights by place.

    Attributes:
        input: tables read by row (token embedding and the like), always on the CPU.
        head: output norm, and the output matrix where it is a tensor of its own.
        tied: bytes of the token table where that is the output matrix: nothing more on the CPU,
            a copy on a GPU. 0 otherwise.
        layers: bytes per layer, MTP layers last, experts included.
        experts: the experts' part of each layer.
        largest, largest_expert: the largest tensor of each layer, and of its experts.
    """

    input: int
    head: int
    tied: int
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    largest: tuple[int, ...]
    largest_expert: tuple[int, ...]


# The last maps made, each with the tensors it was made of (held, so that an id stays unique):
# the search for the largest context asks for the same model a hundred times.
_recent: dict[int, tuple[tuple[Tensor, ...], WeightMap]] = {}


def weight_map(model: ModelInfo) -> WeightMap:
    """The map of ``model``."""
    key = id(model.tensors)
    if key not in _recent:
        if len(_recent) >= 8:
            del _recent[next(iter(_recent))]
        _recent[key] = (model.tensors, _make(model))
    return _recent[key][1]


def _make(model: ModelInfo) -> WeightMap:
    n = model.n_layer + model.n_mtp_layers
    layers, experts, largest, largest_expert = ([0] * n for _ in range(4))
    table = rest = norm = output = 0
    for t in model.tensors:
        layer = t.layer
        if layer is not None and layer < n:
            layers[layer] += t.nbytes
            largest[layer] = max(largest[layer], t.nbytes)
            if _EXPERTS.search(t.name):
                experts[layer] += t.nbytes
                largest_expert[layer] = max(largest_expert[layer], t.nbytes)
        elif t.name == "token_embd.weight":
            table = t.nbytes
        elif t.name == "output.weight":
            output = t.nbytes
        elif t.name.startswith("output"):
            norm += t.nbytes
        else:
            rest += t.nbytes
    tied = 0 if output else table
    return WeightMap(
        table + rest,
        norm + output,
        tied,
        tuple(layers),
        tuple(experts),
        tuple(largest),
        tuple(largest_expert),
    )


def trunk_bytes(model: ModelInfo) -> int:
    """All weights a server without drafter holds: MTP layers are not loaded then."""
    w = weight_map(model)
    return w.input + w.head + sum(w.layers[: model.n_layer])


def bytes_per_token(model: ModelInfo) -> int:
    """Weight bytes read to compute one token: of the experts only those used, of the token table
    nothing but when it is the head, and no MTP layer."""
    w = weight_map(model)
    share = model.n_expert_used / model.n_expert if model.n_expert else 1.0
    total = float(w.head + w.tied)
    for all_, exp in zip(w.layers[: model.n_layer], w.experts, strict=False):
        total += all_ - exp + exp * share
    return round(total)

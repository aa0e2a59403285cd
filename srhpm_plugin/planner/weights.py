"""Where a model's bytes are: input table, layers, experts, head; as in the file or packed."""

from __future__ import annotations

from dataclasses import dataclass

from ..model import ModelInfo, Tensor
from ..packing import EXPERTS, held_bytes, packed_bytes


@dataclass(frozen=True)
class WeightMap:
    """Bytes of the weights by place.

    Attributes:
        input: tables read by row (token embedding and the like), always on the CPU.
        head: output norm, and the output matrix where it is a tensor of its own.
        tied: bytes of the token table where that is the output matrix, which a GPU holds as a
            copy. 0 otherwise.
        copy: what the CPU holds of ``tied`` beside ``input``: a packed copy, or nothing.
        layers: bytes per layer, MTP layers last, experts included.
        experts: the experts' part of each layer.
        largest_mixing, largest_dense, largest_expert: the largest tensor of each layer that mixes
            tokens, of its dense feed-forward, and of its experts.
    """

    input: int
    head: int
    tied: int
    copy: int
    layers: tuple[int, ...]
    experts: tuple[int, ...]
    largest_mixing: tuple[int, ...]
    largest_dense: tuple[int, ...]
    largest_expert: tuple[int, ...]


# The last maps made, each with the tensors it was made of (held, so that an id stays unique):
# the search for the largest context asks for the same model a hundred times.
_recent: dict[tuple[int, bool], tuple[tuple[Tensor, ...], WeightMap]] = {}


def weight_map(model: ModelInfo, packed: bool = False) -> WeightMap:
    """The map of ``model``, with ``packed`` of its weights as our kernels hold them."""
    key = id(model.tensors), packed
    if key not in _recent:
        if len(_recent) >= 8:
            del _recent[next(iter(_recent))]
        _recent[key] = (model.tensors, _make(model, packed))
    return _recent[key][1]


def _make(model: ModelInfo, packed: bool) -> WeightMap:
    n = model.n_layer + model.n_mtp_layers
    layers, experts, mixing, dense, expert = ([0] * n for _ in range(5))
    table = rest = norm = output = copy = 0
    for t in model.tensors:
        layer, nbytes = t.layer, held_bytes(t, packed)
        if layer is not None and layer < n:
            layers[layer] += nbytes
            kind = mixing
            if EXPERTS.search(t.name):
                experts[layer] += nbytes
                kind = expert
            elif ".ffn_" in t.name:
                kind = dense
            kind[layer] = max(kind[layer], nbytes)
        elif t.name == "token_embd.weight":
            table = nbytes
            copy = (packed_bytes(t) or 0) if packed else 0
        elif t.name == "output.weight":
            output = nbytes
        elif t.name.startswith("output"):
            norm += nbytes
        else:
            rest += nbytes
    copy = 0 if output else copy
    tied = 0 if output else copy or table
    return WeightMap(
        table + rest,
        norm + output,
        tied,
        copy,
        tuple(layers),
        tuple(experts),
        tuple(mixing),
        tuple(dense),
        tuple(expert),
    )


def trunk_bytes(model: ModelInfo, packed: bool = False) -> int:
    """All weights a server without drafter holds: MTP layers are not loaded then."""
    w = weight_map(model, packed)
    return w.input + w.head + w.copy + sum(w.layers[: model.n_layer])


def bytes_per_token(model: ModelInfo, packed: bool = False) -> int:
    """Weight bytes read to compute one token: of the experts only those used, of the token table
    nothing but when it is the head, and no MTP layer."""
    w = weight_map(model, packed)
    share = model.n_expert_used / model.n_expert if model.n_expert else 1.0
    total = float(w.head + w.tied)
    for all_, exp in zip(w.layers[: model.n_layer], w.experts, strict=False):
        total += all_ - exp + exp * share
    return round(total)

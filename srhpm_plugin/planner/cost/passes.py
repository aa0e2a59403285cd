"""What a pass over M tokens costs: pure functions of a model's header and a calibration.

``pass = sum over weights of bytes * cost per byte at M  +  sum over layers of attention(M, context)
+ fixed + layers * overhead``. All tensors are taken to lie in RAM.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...calibrate import fit
from ...calibrate.data import Calibration, EngineName, Table
from ...model import ModelInfo, Tensor
from ...packing import EXPERTS, is_factor, packed_bytes

_TABLE = "token_embd.weight"
_HEAD = "output.weight"


class Unknown(Exception):
    """The calibration does not say what a part of the model costs; the message names it."""


def factors(model: ModelInfo, *, mtp: bool = False) -> Iterator[Tensor]:
    """The tensors that a pass multiplies by: of the trunk and the head, or with ``mtp`` of one MTP
    layer and the head."""
    tied = all(t.name != _HEAD for t in model.tensors)
    for t in model.tensors:
        if tied and t.name == _TABLE:
            yield t
        elif is_factor(t):
            layer = t.layer
            wanted = layer == model.n_layer if mtp else layer is None or layer < model.n_layer
            if wanted or t.name == _HEAD:
                yield t


def weights_ms(
    model: ModelInfo,
    calibration: Calibration,
    engine: EngineName,
    m: int,
    *,
    mtp: bool = False,
) -> float:
    """Milliseconds of all products of a pass over ``m`` tokens.

    Raises:
        Unknown: a weight type was not measured.
    """
    total = 0.0
    for tensor in factors(model, mtp=mtp):
        total += product_ms(tensor, model, calibration, engine, m)
    return total


def product_ms(
    tensor: Tensor, model: ModelInfo, calibration: Calibration, engine: EngineName, m: int
) -> float:
    """Milliseconds of the product of one weight with ``m`` tokens.

    Raises:
        Unknown: its type was not measured.
    """
    own = packed_bytes(tensor) if engine == "ours" else None
    floats = tensor.type in ("F16", "BF16", "F32")
    # What has no form of ours is multiplied by upstream's kernels.
    side: EngineName = "ours" if engine == "ours" and (own is not None or floats) else "stock"
    table = calibration.products[side].get(tensor.type)
    if table is None:
        raise Unknown(f"{tensor.type} weights")
    part, tokens = touched(tensor, model, m)
    return part * (tensor.nbytes if own is None else own) * fit.at(table, tokens) / 1e6


def touched(tensor: Tensor, model: ModelInfo, m: int) -> tuple[float, float]:
    """The part of a weight that a pass over ``m`` tokens reads, and by how many tokens each of its
    matrices is multiplied."""
    if not model.n_expert or not EXPERTS.search(tensor.name):
        return 1.0, float(m)
    experts = experts_touched(model.n_expert, model.n_expert_used, m)
    return experts / model.n_expert, max(1.0, m * model.n_expert_used / experts)


def experts_touched(n: int, used: int, m: int) -> float:
    """Of ``n`` experts of which each token uses ``used``, how many a pass over ``m`` tokens reads
    on average, if tokens choose independently of each other and none is preferred:
    ``n * (1 - (1 - used / n) ** m)``. Neighbouring tokens choose more alike, so it is an upper
    bound."""
    return float(n * (1.0 - (1.0 - used / n) ** m))


def attention_ms(
    model: ModelInfo, calibration: Calibration, engine: EngineName, m: int, ctx: int
) -> float:
    """Milliseconds of attention of a pass over ``m`` tokens to ``ctx`` tokens of an f16 cache, all
    layers; layers with a window look at no more than that."""
    layers = range(min(len(model.n_head), len(model.n_head_kv)))
    return sum(layer_attention_ms(model, calibration, engine, i, m, ctx) for i in layers)


def layer_attention_ms(
    model: ModelInfo, calibration: Calibration, engine: EngineName, layer: int, m: int, ctx: int
) -> float:
    """The same of one layer."""
    cost = calibration.attention[engine]
    elements = (model.key_length + model.value_length) / 2
    seen = ctx
    if model.sliding_window and layer in model.window_layers:
        seen = min(ctx, model.sliding_window)
    rows = cost.query * m * model.n_head[layer] + cost.cell * model.n_head_kv[layer]
    return rows * seen * elements / 1e6


def overhead_ms(n_layer: int, calibration: Calibration, engine: EngineName, m: int) -> float:
    """Milliseconds that a pass takes besides."""
    passes = calibration.passes[engine]
    return fit.at(passes.fixed, m) + n_layer * fit.at(passes.layer, m)


def pass_ms(
    model: ModelInfo,
    calibration: Calibration,
    engine: EngineName,
    m: int,
    ctx: int,
) -> float:
    """Milliseconds of a pass over ``m`` tokens.

    Raises:
        Unknown: see :func:`weights_ms`.
    """
    return (
        weights_ms(model, calibration, engine, m)
        + attention_ms(model, calibration, engine, m, ctx)
        + overhead_ms(model.n_layer, calibration, engine, m)
    )


def mtp_pass_ms(
    model: ModelInfo,
    calibration: Calibration,
    engine: EngineName,
    m: int,
    ctx: int,
) -> float:
    """The same of a pass over one MTP layer and the head.

    Raises:
        Unknown: see :func:`weights_ms`.
    """
    layers = max(1, sum(1 for heads in model.n_head if heads))
    return (
        weights_ms(model, calibration, engine, m, mtp=True)
        + attention_ms(model, calibration, engine, m, ctx) / layers
        + overhead_ms(1, calibration, engine, m)
    )


def table(ms: Table) -> dict[int, float]:
    """A copy in which no width costs less than a smaller one."""
    return fit.rising(ms)

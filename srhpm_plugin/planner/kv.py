"""Bytes of the KV cache and of recurrent states, as llama.cpp allocates them."""

from __future__ import annotations

from functools import cache

from ..model import ModelInfo
from .units import pad

# What `--cache-type-k` and `--cache-type-v` accept.
KV_TYPES = ("f16", "f32", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

# The server rounds the context of a slot up to this many cells.
CELL_STEP = 256

# The server's default micro-batch, which no plan changes.
UBATCH = 512


@cache
def row_bytes(kv_type: str, elements: int) -> int:
    """Bytes of ``elements`` values of a KV type (a whole number of blocks)."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    block, nbytes = GGML_QUANT_SIZES[GGMLQuantizationType[kv_type.upper()]]
    return -(-elements // block) * nbytes


def block_size(kv_type: str) -> int:
    """Elements per block of a KV type; a head's length must be a multiple."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    return int(GGML_QUANT_SIZES[GGMLQuantizationType[kv_type.upper()]][0])


def cells(model: ModelInfo, ctx: int, *, sliding: bool) -> int:
    """KV cells of one slot in one layer."""
    whole = pad(ctx, CELL_STEP)
    if not sliding:
        return whole
    return pad(min(whole, model.sliding_window + UBATCH), CELL_STEP)


def kv_bytes(model: ModelInfo, layer: int, ctx: int, parallel: int, types: tuple[str, str]) -> int:
    """Bytes of the KV cache of one layer, all slots. ``types`` are those of K and V; MTP layers
    come after ``n_layer``."""
    at = min(layer, model.n_layer - 1)
    heads = model.n_head_kv[at] if layer < model.n_layer else max(model.n_head_kv, default=0)
    if not heads:
        return 0
    # Multi-head latent attention keeps one compressed row and no V.
    latent = f"{model.arch}.attention.key_length_mla" in model.metadata
    sliding = layer in model.window_layers
    row = row_bytes(types[0], heads * _length(model, "key", sliding))
    if not latent:
        row += row_bytes(types[1], heads * _length(model, "value", sliding))
    return parallel * cells(model, ctx, sliding=sliding) * row


def _length(model: ModelInfo, which: str, sliding: bool) -> int:
    """Elements per head; Gemma 4 states shorter ones for layers with a window."""
    whole = model.key_length if which == "key" else model.value_length
    own = model.metadata.get(f"{model.arch}.attention.{which}_length_swa") if sliding else None
    return own if isinstance(own, int) else whole


def state_bytes(model: ModelInfo, layer: int) -> int:
    """Bytes of the recurrent state of one layer and one sequence (f32)."""
    r = model.recurrent
    return 4 * (r.conv_state + r.ssm_state) if r and layer in r.layers else 0

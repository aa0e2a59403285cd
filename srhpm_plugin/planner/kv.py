"""Bytes of the KV cache and of recurrent states, as llama.cpp allocates them."""

from __future__ import annotations

from functools import cache

from ..model import ModelInfo
from .units import pad

# What `--cache-type-k` and `--cache-type-v` accept.
KV_TYPES = ("f16", "f32", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

# The server rounds the context of a slot up to this many cells.
CELL_STEP = 256

# Every n-th layer attends to everything, the others to a window; the flag says whether the full
# layer comes first in its group. For files that do not carry the pattern themselves.
_SWA_EVERY = {
    "afmoe": (4, False),
    "cohere2": (4, False),
    "cohere2moe": (4, True),
    "exaone-moe": (4, False),
    "exaone4": (4, False),
    "gemma2": (2, False),
    "gemma3": (6, False),
    "gemma3n": (5, False),
    "gpt-oss": (2, False),
    "llama4": (4, False),
    "mellum": (4, False),
    "olmo2": (4, False),
    "plamo3": (8, False),
    "smallthinker": (4, True),
}


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


def sliding_layers(model: ModelInfo) -> frozenset[int]:
    """Layers that attend to a window. Empty where that is not known: all layers then count with
    the whole context, which errs on the safe side."""
    if not model.sliding_window or model.arch not in _SWA_EVERY:
        return frozenset()
    every, full_first = _SWA_EVERY[model.arch]
    written = model.metadata.get(f"{model.arch}.attention.sliding_window_pattern")
    if isinstance(written, int) and not isinstance(written, bool):
        every = written
    if every <= 0:
        return frozenset(range(model.n_layer))
    full = 0 if full_first else every - 1
    return frozenset(i for i in range(model.n_layer) if i % every != full)


def cells(model: ModelInfo, ctx: int, *, sliding: bool, ubatch: int) -> int:
    """KV cells of one slot in one layer."""
    whole = pad(ctx, CELL_STEP)
    if not sliding:
        return whole
    return pad(min(whole, model.sliding_window + ubatch), CELL_STEP)


def kv_bytes(
    model: ModelInfo, layer: int, ctx: int, parallel: int, type_k: str, type_v: str, ubatch: int
) -> int:
    """Bytes of the KV cache of one layer, all slots; MTP layers come after ``n_layer``."""
    at = min(layer, model.n_layer - 1)
    heads = model.n_head_kv[at] if layer < model.n_layer else max(model.n_head_kv, default=0)
    if not heads or layer >= _first_shared(model):
        return 0
    # Multi-head latent attention keeps one compressed row and no V.
    latent = f"{model.arch}.attention.key_length_mla" in model.metadata
    row = row_bytes(type_k, heads * model.key_length)
    if not latent:
        row += row_bytes(type_v, heads * model.value_length)
    n = cells(model, ctx, sliding=layer in sliding_layers(model), ubatch=ubatch)
    return parallel * n * row


def _first_shared(model: ModelInfo) -> int:
    """First layer that reuses an earlier layer's cache (Gemma 3n and 4)."""
    shared = model.metadata.get(f"{model.arch}.attention.shared_kv_layers", 0)
    n = shared if isinstance(shared, int) else 0
    return model.n_layer - n if n > 0 else model.n_layer + model.n_mtp_layers


def state_bytes(model: ModelInfo, layer: int) -> int:
    """Bytes of the recurrent state of one layer and one sequence (f32)."""
    r = model.recurrent
    return 4 * (r.conv_state + r.ssm_state) if r and layer in r.layers else 0

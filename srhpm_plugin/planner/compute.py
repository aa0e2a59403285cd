"""Size of the server's compute buffer, from the largest tensors alive at the same time.

llama.cpp reserves the graph of one full micro-batch. What is alive at its peak was read off the
server's own log for models of many shapes (tests/planner/test_compute.py repeats it): five rows of
the residual width per token for the whole graph, the attention mask in f16, and the widest of the
stages attention, feed-forward, experts, recurrence and logits.
"""

from __future__ import annotations

from ..model import ModelInfo
from .kv import CELL_STEP, UBATCH, cells
from .units import pad

BATCH = 2048  # the server's default batch, which no plan changes
_F32 = 4
_F16 = 2
_IDS = 10  # token, position and cache row numbers per token, in f32 widths


def _attention(model: ModelInfo) -> int:
    heads = max(model.n_head, default=0)
    heads_kv = max(model.n_head_kv, default=0)
    q, k, v = heads * model.key_length, heads_kv * model.key_length, heads_kv * model.value_length
    return q + max(q, v + 2 * k)


def _experts(model: ModelInfo) -> int:
    if not model.n_expert:
        return 0
    widths = [t.shape[1] for t in model.tensors if "ffn_up_exps" in t.name and len(t.shape) > 1]
    width = max(widths, default=0)
    used = model.n_expert_used
    inner = used * width
    # Gate and up are free again when the experts' outputs are made; those take their place only
    # if they fit there.
    out = used * model.n_embd
    return 3 * inner + (0 if 2 * inner >= out else out)


def _dense(model: ModelInfo) -> int:
    has_dense = any(".ffn_up.weight" in t.name for t in model.tensors)
    return 3 * model.n_ff if has_dense or not model.n_expert else 0


def _conv(model: ModelInfo) -> tuple[int, int]:
    """(channels, length of the history) of the recurrence's convolution."""
    for t in model.tensors:
        if "ssm_conv1d.weight" in t.name and len(t.shape) > 1:
            return t.shape[1], t.shape[0] - 1
    return 0, 0


def mask_bytes(model: ModelInfo, ctx: int, ubatch: int) -> int:
    """The attention masks: one for the whole context, one more for the windows."""
    n = cells(model, ctx, sliding=False)
    if model.window_layers:
        n += cells(model, ctx, sliding=True)
    return n * ubatch * _F16


def compute_bytes(
    model: ModelInfo, ctx: int, parallel: int, outputs: int, *, head: bool = True
) -> int:
    """Compute buffer of a device that holds layers of ``model``.

    Args:
        outputs: rows of logits that one pass may ask for.
        head: the device holds the output matrix.
    """
    ubatch = min(UBATCH, pad(ctx, CELL_STEP) * parallel)
    conv, history = _conv(model)
    logits = outputs * model.n_vocab * _F32 if head else 0
    stage = max(
        max(_attention(model), _dense(model), _experts(model)) * ubatch * _F32,
        3 * conv * (ubatch + history) * _F32,
        logits,
    )
    base = (5 * model.n_embd + _IDS) * ubatch * _F32
    return base + stage + mask_bytes(model, ctx, ubatch)


def input_bytes(model: ModelInfo, ctx: int, parallel: int) -> int:
    """What the CPU still needs when every layer is on a GPU: embedded rows and masks."""
    ubatch = min(UBATCH, pad(ctx, CELL_STEP) * parallel)
    return (model.n_embd + _IDS) * ubatch * _F32 + mask_bytes(model, ctx, ubatch)


def output_bytes(model: ModelInfo, outputs: int) -> int:
    """The host's copy of the logits."""
    return outputs * model.n_vocab * _F32

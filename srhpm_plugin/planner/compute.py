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


def _recurrence(model: ModelInfo, ubatch: int, planes: int) -> int:
    """Bytes of the convolution's inputs and, with rollback, of the outputs joined with a state for
    every plane (without, they fit where the inputs were)."""
    widths = {
        name: t.shape
        for t in model.tensors
        for name in ("ssm_conv1d.weight", "ssm_out.weight")
        if t.name.endswith(name) and len(t.shape) > 1
    }
    if "ssm_conv1d.weight" not in widths or model.recurrent is None:
        return 0
    kernel, channels = widths["ssm_conv1d.weight"][:2]
    total = 3 * channels * (ubatch + kernel - 1) * _F32
    if planes:
        inner = widths.get("ssm_out.weight", (0,))[0]
        total += (inner * ubatch + (1 + planes) * model.recurrent.ssm_state) * _F32
    return total


def mask_bytes(model: ModelInfo, ctx: int, ubatch: int) -> int:
    """The attention masks: one for the whole context, one more for the windows."""
    n = cells(model, ctx, sliding=False)
    if model.window_layers:
        n += cells(model, ctx, sliding=True)
    return n * ubatch * _F16


def compute_bytes(
    model: ModelInfo,
    ctx: int,
    parallel: int,
    outputs: int,
    *,
    head: bool = True,
    planes: int | None = 0,
) -> int:
    """Compute buffer of a device that holds layers of ``model``.

    Args:
        outputs: rows of logits that one pass may ask for.
        head: the device holds the output matrix.
        planes: recurrent states written per pass for rollback; ``None`` for MTP layers, which
            have no recurrence.
    """
    ubatch = min(UBATCH, pad(ctx, CELL_STEP) * parallel)
    logits = outputs * model.n_vocab * _F32 if head else 0
    stage = max(
        max(_attention(model), _dense(model), _experts(model)) * ubatch * _F32,
        0 if planes is None else _recurrence(model, ubatch, planes),
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

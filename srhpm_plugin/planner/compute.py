"""Size of the server's compute buffer, from the largest tensors alive at the same time.

llama.cpp reserves the graph of one full micro-batch. What is alive at its peak was read off the
server's own log for models of many shapes (tests/planner/test_compute.py repeats it): five rows of
the residual width per token for the whole graph, the attention mask in f16, and the widest of the
stages attention, feed-forward, experts, recurrence and logits.

Beside a GPU that takes products for prompts (upstream's rule for CUDA, Vulkan and others) the
layers in RAM are computed there too: it needs room for one weight at a time and for one layer's
cache, and the CPU only for what it hands over.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..model import ModelInfo
from .kv import CELL_STEP, UBATCH, cells
from .units import pad

BATCH = 2048  # the server's default batch, which no plan changes
_F32 = 4
_F16 = 2
_IDS = 10  # token, position and cache row numbers per token, in f32 widths


@dataclass(frozen=True)
class Visitors:
    """What a GPU borrows of the layers in RAM while it computes a prompt, one after the other:
    bytes of the largest weight that mixes tokens, of a dense feed-forward, of experts, and of the
    largest KV cache of a layer."""

    mixing: int = 0
    dense: int = 0
    experts: int = 0
    cache: int = 0


_NONE = Visitors()


def _attention(model: ModelInfo) -> int:
    heads = max(model.n_head, default=0)
    heads_kv = max(model.n_head_kv, default=0)
    q, k, v = heads * model.key_length, heads_kv * model.key_length, heads_kv * model.value_length
    return q + max(q, v + 2 * k)


def _experts(model: ModelInfo, row: int, visitor: int) -> int:
    """Bytes of the experts' activations, of which a weight may visit."""
    if not model.n_expert:
        return 0
    widths = [t.shape[1] for t in model.tensors if "ffn_up_exps" in t.name and len(t.shape) > 1]
    width = max(widths, default=0)
    used = model.n_expert_used
    inner, out = used * width * row, used * model.n_embd * row
    # Gate and up are free again when the experts' outputs are made; those take their place only
    # if they fit there.
    alone = 3 * inner + (0 if 2 * inner >= out else out)
    return max(alone, max(3 * inner, inner + out) + visitor if visitor else 0)


def _dense(model: ModelInfo) -> int:
    has_dense = any(".ffn_up.weight" in t.name for t in model.tensors)
    return 3 * model.n_ff if has_dense or not model.n_expert else 0


def _recurrence(model: ModelInfo, ubatch: int, planes: int) -> int:
    """Bytes of the convolution's inputs and, with rollback, of the outputs joined with a state for
    every plane (without, they fit where the inputs were)."""
    kernel, channels = _convolution(model)
    if not channels or model.recurrent is None:
        return 0
    total = 3 * channels * (ubatch + kernel - 1) * _F32
    if planes:
        inner = _shape(model, "ssm_out.weight")[0]
        total += (inner * ubatch + (1 + planes) * model.recurrent.ssm_state) * _F32
    return total


def _convolution(model: ModelInfo) -> tuple[int, int]:
    """Taps and channels of the convolution before a recurrence; zeros without one."""
    return _shape(model, "ssm_conv1d.weight")


def _shape(model: ModelInfo, name: str) -> tuple[int, int]:
    """Of the last matrix whose name ends so; zeros without one."""
    shapes = [t.shape for t in model.tensors if t.name.endswith(name) and len(t.shape) > 1]
    return (shapes[-1][0], shapes[-1][1]) if shapes else (0, 0)


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
    planes: int = 0,
    visitors: Visitors = _NONE,
    embeds: bool = True,
) -> int:
    """Compute buffer of a device that holds layers of ``model``.

    Args:
        outputs: rows of logits that one pass may ask for.
        head: the device holds the output matrix.
        planes: recurrent states written per pass for rollback.
        visitors: on a GPU, what visits it.
        embeds: the device looks up the tokens' rows; a GPU that holds all layers does not.
    """
    ubatch = min(UBATCH, pad(ctx, CELL_STEP) * parallel)
    logits = outputs * model.n_vocab * _F32 if head else 0
    row = ubatch * _F32
    # Half a layer's cache more where the allocator finds no room for it in the last one's: a
    # quarter is the middle.
    borrowed = 2 * max(model.n_head, default=0) * model.key_length * row + visitors.cache * 5 // 4
    stage = max(
        _attention(model) * row + visitors.mixing,
        _dense(model) * row + visitors.dense,
        _experts(model, row, visitors.experts),
        borrowed if visitors.cache else 0,
        _recurrence(model, ubatch, planes * parallel),
        logits,
    )
    base = ((5 if embeds else 4) * model.n_embd + _IDS) * row
    return base + stage + mask_bytes(model, ctx, ubatch)


def mtp_bytes(model: ModelInfo, ctx: int, parallel: int, visiting_cache: int = 0) -> int:
    """Compute buffer of a context in which an MTP layer drafts: with one slot it only attends for
    all tokens, and its feed-forward is computed for those that are asked for."""
    row = min(UBATCH, pad(ctx, CELL_STEP) * parallel) * _F32
    q = max(model.n_head, default=0) * model.key_length
    kv = max(model.n_head_kv, default=0) * (model.key_length + model.value_length)
    widths = [4 * model.n_embd + 2 * q + kv]
    if parallel > 1:
        widths.append(2 * model.n_embd + _dense(model))
    return (max(widths) + _IDS) * row + visiting_cache + mask_bytes(model, ctx, row // _F32)


def beside_gpu_bytes(
    model: ModelInfo,
    ctx: int,
    parallel: int,
    *,
    attends: bool = False,
    recurs: bool = False,
    planes: int = 0,
    rows: int = 4,
) -> int:
    """Compute buffer of the CPU where a GPU takes its products of prompts: embedded rows and masks,
    or what goes into the caches in RAM, which follow their layers.

    Args:
        attends: there is a KV cache in RAM.
        recurs: there are recurrent states in RAM.
        planes: states written per pass for rollback.
        rows: of the residual width per token; an MTP context has 2.
    """
    ubatch = min(UBATCH, pad(ctx, CELL_STEP) * parallel)
    row = ubatch * _F32
    handed = [rows * model.n_embd * row]
    if attends:
        written = max(model.n_head_kv, default=0) * (model.key_length + model.value_length)
        handed.append((2 * model.n_embd + written) * row)
    if recurs and model.recurrent is not None:
        # For each state the convolution's last inputs, with all others before them.
        kernel, channels = _convolution(model)
        conv = channels * (ubatch + kernel - 1) * _F32
        handed.append(5 * model.n_embd * row + (1 + planes) * conv)
    return _IDS * row + max(handed) + mask_bytes(model, ctx, ubatch)


def output_bytes(model: ModelInfo, outputs: int) -> int:
    """The host's copy of the logits."""
    return outputs * model.n_vocab * _F32

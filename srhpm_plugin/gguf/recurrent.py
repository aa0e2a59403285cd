"""Which layers carry a recurrent state and how large it is, as llama.cpp allocates it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..model import Recurrent
from .fields import Fields

if TYPE_CHECKING:
    from .layers import Layers

RECURRENT_ARCHS: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Architectures without attention; every layer is recurrent."""

# Full attention in every n-th layer, linear attention in the others; the field overrides n.
_INTERVAL: Final = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}

# A layer without key-value heads is recurrent.
_NO_KV_HEADS: Final = frozenset(
    {
        "bailingmoe3",
        "glm5-next",
        "granitehybrid",
        "jamba",
        "kimi-k3",
        "kimi-linear",
        "lfm2",
        "lfm2moe",
        "plamo2",
    }
)

# Here such a layer may also be a feed-forward one.
_NO_KV_HEADS_NOR_FF: Final = frozenset({"nemotron_h", "nemotron_h_moe"})

# Attention and a recurrent state side by side in every layer.
PARALLEL_ARCHS: Final = frozenset({"falcon-h1"})

_MAX: Final = 2**24
_MAX_STATE: Final = 2**40


def read_recurrent(f: Fields, layers: Layers) -> Recurrent | None:
    """The recurrent state of a model, or ``None`` when it has none.

    Raises:
        UserError: a field that a recurrent architecture needs is missing or impossible.
    """
    where = recurrent_layers(f, layers)
    if not where:
        return None
    conv, state = _state_sizes(f, layers)
    if max(conv, state) > _MAX_STATE:
        raise f.fail(f"its recurrent state has {max(conv, state)} elements per layer")
    return Recurrent(where, conv, state)


def recurrent_layers(f: Fields, layers: Layers) -> tuple[int, ...]:
    """Numbers of the trunk layers that carry a recurrent state."""
    trunk = range(layers.n_layer)
    if f.arch in RECURRENT_ARCHS or f.arch in PARALLEL_ARCHS:
        return tuple(trunk)
    if f.arch in _INTERVAL:
        flags = f.flags("attention.recurrent_layers", layers.n_all, layers.n_all)
        if flags is not None:
            return tuple(i for i in trunk if flags[i])
        every = f.number("full_attention_interval", _INTERVAL[f.arch], low=1)
        return tuple(i for i in trunk if (i + 1) % every)
    if f.arch in _NO_KV_HEADS:
        return tuple(i for i in trunk if not layers.n_head_kv[i])
    if f.arch in _NO_KV_HEADS_NOR_FF:
        return tuple(i for i in trunk if not layers.n_head_kv[i] and not layers.n_ff[i])
    return ()


def _state_sizes(f: Fields, layers: Layers) -> tuple[int, int]:
    """Elements per layer and sequence of the convolution state and of the recurrent state."""
    n_embd = layers.n_embd
    heads = layers.first_heads
    if f.has("wkv.head_size"):
        shifts = f.number("token_shift_count", 2, high=_MAX)
        return shifts * n_embd, n_embd * f.number("wkv.head_size", high=_MAX)
    if f.has("shortconv.l_cache"):
        return n_embd * (f.number("shortconv.l_cache", low=1, high=_MAX) - 1), 0
    if f.has("kda.head_dim"):
        dim = f.number("kda.head_dim", low=1, high=_MAX)
        kernel = f.number("ssm.conv_kernel", low=0, high=_MAX)
        return 3 * (kernel - 1 if kernel else 3) * heads * dim, dim * dim * heads
    if f.arch == "minimax-01":
        return 0, layers.key_length**2 * heads
    kernel = f.number("ssm.conv_kernel", low=1, high=_MAX)
    inner = f.number("ssm.inner_size", low=1, high=_MAX)
    state = f.number("ssm.state_size", low=1, high=_MAX)
    groups = f.number("ssm.group_count", 0, high=_MAX)
    return (kernel - 1) * (inner + 2 * groups * state), state * inner

"""Layers, heads and widths of a model, with llama.cpp's defaults for what the header omits."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from .fields import Fields
from .recurrent import RECURRENT_ARCHS

MAX_LAYERS: Final = 512  # LLAMA_MAX_LAYERS
MAX_EXPERTS: Final = 1024  # LLAMA_MAX_EXPERTS
MAX_WIDTH: Final = 2**20
MAX_FF: Final = 2**24
MAX_HEADS: Final = 2**16
MAX_CTX: Final = 2**31 - 1


@dataclass(frozen=True)
class Layers:
    """What the header says of the layers.

    Attributes:
        n_all: all layers, those of multi-token prediction included.
        n_layer: the trunk's layers, the first of them.
        n_mtp: multi-token-prediction layers whose tensors are there.
        n_embd: width.
        n_ff: feed-forward width per layer, length ``n_all``.
        n_head, n_head_kv: as stated, per layer, length ``n_all``.
        key_length, value_length: elements per head.
        n_expert, n_expert_used: 0 for dense models.
        n_ctx_train: 0 when not stated.
    """

    n_all: int
    n_layer: int
    n_mtp: int
    n_embd: int
    n_ff: tuple[int, ...]
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    key_length: int
    value_length: int
    n_expert: int
    n_expert_used: int
    n_ctx_train: int

    @property
    def first_heads(self) -> int:
        """Heads of the first layer that has any."""
        return next((n for n in self.n_head if n), 0)


def read_layers(f: Fields, tensor_names: Collection[str]) -> Layers:
    """Read and check the hyperparameters.

    Raises:
        UserError: a required field is missing, or a value is impossible.
    """
    n_all = f.number("block_count", low=1, high=MAX_LAYERS)
    n_layer, n_mtp = _split_mtp(f, n_all, tensor_names)
    n_embd = f.number("embedding_length", low=1, high=MAX_WIDTH)
    n_head, n_head_kv = _heads(f, n_all)
    first = next((n for n in n_head if n), 0)
    per_head = n_embd // first if first else 0
    n_expert, n_used = _experts(f, n_all)
    return Layers(
        n_all=n_all,
        n_layer=n_layer,
        n_mtp=n_mtp,
        n_embd=n_embd,
        n_ff=_feed_forward(f, n_all),
        n_head=n_head,
        n_head_kv=n_head_kv,
        key_length=f.number("attention.key_length", per_head, high=MAX_WIDTH),
        value_length=f.number("attention.value_length", per_head, high=MAX_WIDTH),
        n_expert=n_expert,
        n_expert_used=n_used,
        n_ctx_train=f.number("context_length", 0, high=MAX_CTX),
    )


def _split_mtp(f: Fields, n_all: int, names: Collection[str]) -> tuple[int, int]:
    """Trunk layers, and those of multi-token prediction.

    Converters can leave the tensors out while the count stays in the header; a drafter is there
    only with them.
    """
    stated = f.number("nextn_predict_layers", 0, high=n_all)
    n_layer = n_all - stated
    there = sum(f"blk.{i}.nextn.eh_proj.weight" in names for i in range(n_layer, n_all))
    return n_layer, there


def _heads(f: Fields, n_all: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n_head = f.per_layer("attention.head_count", n_all, (0,) * n_all, MAX_HEADS)
    n_head_kv = f.per_layer("attention.head_count_kv", n_all, n_head, MAX_HEADS)
    if not any(n_head) and f.arch not in RECURRENT_ARCHS:
        raise f.fail(f"{f.arch}.attention.head_count gives it no attention heads")
    for i, (heads, kv) in enumerate(zip(n_head, n_head_kv, strict=True)):
        if kv > heads > 0:
            raise f.fail(f"layer {i} has {kv} key-value heads for {heads} heads")
    return n_head, n_head_kv


def _feed_forward(f: Fields, n_all: int) -> tuple[int, ...]:
    """Stated width, or that of an expert in models where every layer is a mixture."""
    none = (0,) * n_all
    stated = f.per_layer("feed_forward_length", n_all, none, MAX_FF)
    if any(stated):
        return stated
    return f.per_layer("expert_feed_forward_length", n_all, none, MAX_FF)


def _experts(f: Fields, n_all: int) -> tuple[int, int]:
    count = f.number("expert_count", 0, high=MAX_EXPERTS)
    used = max(f.per_layer("expert_used_count", n_all, (0,) * n_all, MAX_EXPERTS))
    if f.arch in ("hunyuan_vl", "hunyuan-dense") and count <= 1:
        return 0, 0  # these state one expert for a dense model
    if used > count or (count and not used):
        raise f.fail(f"it states {count} experts and uses {used} of them")
    return count, used

"""What the planner knows of a model: facts of its header, never its tensor data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model file.

    Attributes:
        name: GGUF name, e.g. ``blk.3.ffn_up.weight``.
        shape: ggml order, fastest dimension first; 1 to 4 entries.
        type: ggml type name in upper case, e.g. ``Q4_K``.
        nbytes: bytes of data.
        part: index into ``ModelInfo.parts``.
        offset: absolute byte offset in that part.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    nbytes: int
    part: int = 0
    offset: int = 0

    @property
    def n_elements(self) -> int:
        """Number of weights."""
        n = 1
        for dim in self.shape:
            n *= dim
        return n

    @property
    def layer(self) -> int | None:
        """Layer number for ``blk.N.*``, else ``None``."""
        head, _, rest = self.name.partition(".")
        number = rest.partition(".")[0]
        return int(number) if head == "blk" and number.isdecimal() else None


@dataclass(frozen=True)
class Tokenizer:
    """What must agree for a drafter's token ids to mean the same to the target.

    Attributes:
        model: ``tokenizer.ggml.model``, e.g. ``gpt2``.
        pre: ``tokenizer.ggml.pre``; empty when absent.
        n_tokens: vocabulary entries, padding included.
        tokens_sha256: one hash over all token strings in order.
        merges_sha256: one hash over all merges; empty when there are none.
        special: the special ids (``bos``, ``eos``, ...) and ``add_*`` flags in force, llama.cpp's
            defaults included; an id that is missing is not set.
        token_spans: the bytes of each token, in order; lets :mod:`planner.drafter` compare
            token by token when two vocabularies differ only in padding.
    """

    model: str
    pre: str
    n_tokens: int
    tokens_sha256: str
    merges_sha256: str
    special: Mapping[str, int] = field(default_factory=dict)
    token_spans: tuple[bytes, ...] = field(default=(), repr=False, compare=False)


@dataclass(frozen=True)
class Recurrent:
    """Sizes of a recurrent (SSM, linear attention) state, in elements per layer and sequence.

    Attributes:
        layers: the layer numbers that carry such a state.
        conv_state: elements of the convolution state of one layer.
        ssm_state: elements of the recurrent state of one layer.
    """

    layers: tuple[int, ...]
    conv_state: int
    ssm_state: int


@dataclass(frozen=True)
class ModelInfo:
    """A model as its header describes it. Sizes are in bytes unless named otherwise.

    Attributes:
        path: the file asked for (first part of a split model).
        parts: all files, in order.
        arch: ``general.architecture``.
        name: ``general.name`` or the file name.
        n_params: weights, all tensors.
        nbytes: bytes of tensor data, all parts.
        quant_mix: bytes per ggml type, largest first.
        n_layer: ``block_count`` less the MTP layers.
        n_ctx_train: 0 when the header does not say.
        n_embd, n_ff: widths; ``n_ff`` is the largest layer's.
        n_head, n_head_kv: per layer (length ``n_layer``); 0 where the layer has no attention.
            Only ``n_head_kv`` is 0 where a layer reads an earlier layer's cache.
        key_length, value_length: elements per head.
        n_vocab: rows of the embedding.
        n_expert, n_expert_used: 0 for dense models.
        n_mtp_layers: multi-token-prediction layers (``nextn_predict_layers``).
        sliding_window: tokens; 0 when there is none.
        recurrent: state sizes of hybrid and recurrent models.
        tokenizer: ``None`` for files without a vocabulary.
        tensors: every tensor, in file order.
        metadata: scalar header values (arrays are left out), for display and plugins.
        window_layers: the layers whose attention is limited to ``sliding_window``.
    """

    path: Path
    parts: tuple[Path, ...]
    arch: str
    name: str
    n_params: int
    nbytes: int
    quant_mix: Mapping[str, int]
    n_layer: int
    n_ctx_train: int
    n_embd: int
    n_ff: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    key_length: int
    value_length: int
    n_vocab: int
    n_expert: int
    n_expert_used: int
    n_mtp_layers: int
    sliding_window: int
    recurrent: Recurrent | None
    tokenizer: Tokenizer | None
    tensors: tuple[Tensor, ...] = field(repr=False)
    metadata: Mapping[str, str | int | float | bool] = field(default_factory=dict, repr=False)
    window_layers: tuple[int, ...] = ()

    @property
    def file_bytes(self) -> int:
        """Size on disk of all parts."""
        return sum(p.stat().st_size for p in self.parts)

"""From a model's header to :class:`~srhpm_plugin.model.ModelInfo`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TypeGuard

from ..errors import UserError
from ..model import ModelInfo, Tensor
from .fields import Fields
from .layers import Layers, read_layers
from .parts import Parts, model_stem, read_parts
from .recurrent import PARALLEL_ARCHS, read_recurrent
from .values import LongString, NumberArray, Scalar, StringArray, Value
from .vocabulary import TOKENS, read_tokenizer
from .window import read_window

_ARCH: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_EMBEDDING: Final = "token_embd.weight"
_MAX_NAME: Final = 120

# general.type or architecture of a GGUF that is no language model -> what it is
_NOT_MODELS: Final = {
    "adapter": "a LoRA adapter",
    "clip": "a projector (mmproj) that goes with a model",
    "imatrix": "an importance matrix",
    "mmproj": "a projector (mmproj) that goes with a model",
}


def read_model(path: Path) -> ModelInfo:
    """Read a model's header; of a split model, the headers of all parts.

    Args:
        path: a GGUF file of any name, or any part of a split model.

    Returns:
        The facts of the header with llama.cpp's defaults for what it omits.

    Raises:
        UserError: the file cannot be read, is no GGUF, is truncated or damaged, or describes an
            impossible model.
    """
    parts = read_parts(Path(path), keep=(TOKENS,))
    kv = parts.first.kv
    first = parts.paths[0]
    fields = Fields(first, kv, _architecture(first, kv))
    if not parts.tensors:
        raise fields.fail("it holds no tensors, at most a vocabulary", "give the model's own file")
    names = {t.name for t in parts.tensors}
    layers = read_layers(fields, names)
    _check_blocks(fields, layers, parts.tensors)
    recurrent = read_recurrent(fields, layers)
    stateful = recurrent.layers if recurrent else ()
    window, window_layers = read_window(fields, layers, stateful)
    n_head, n_head_kv = _attention(fields, layers, stateful)
    tokenizer = read_tokenizer(first, kv)
    return ModelInfo(
        path=first,
        parts=parts.paths,
        arch=fields.arch,
        name=_name(parts),
        n_params=sum(t.n_elements for t in parts.tensors),
        nbytes=sum(t.nbytes for t in parts.tensors),
        quant_mix=_quant_mix(parts.tensors),
        n_layer=layers.n_layer,
        n_ctx_train=layers.n_ctx_train,
        n_embd=layers.n_embd,
        n_ff=max(layers.n_ff),
        n_head=n_head,
        n_head_kv=n_head_kv,
        key_length=layers.key_length,
        value_length=layers.value_length,
        n_vocab=_vocab_rows(fields, parts.tensors, tokenizer.n_tokens if tokenizer else 0),
        n_expert=layers.n_expert,
        n_expert_used=layers.n_expert_used,
        n_mtp_layers=layers.n_mtp,
        sliding_window=window,
        recurrent=recurrent,
        tokenizer=tokenizer,
        tensors=parts.tensors,
        metadata={k: v for k, v in kv.items() if _is_scalar(v)},
        window_layers=window_layers,
    )


def _is_scalar(value: Value) -> TypeGuard[Scalar]:
    return not isinstance(value, LongString | StringArray | NumberArray)


def _architecture(path: Path, kv: Mapping[str, Value]) -> str:
    arch = kv.get("general.architecture")
    kind = kv.get("general.type")
    for value in (kind, arch):
        if isinstance(value, str) and value in _NOT_MODELS:
            raise UserError(
                f"cannot read {path}",
                f"it is {_NOT_MODELS[value]}, not a model",
                "give the model's own .gguf file",
            )
    if not isinstance(arch, str):
        why = "its header lacks general.architecture"
    elif not _ARCH.fullmatch(arch):
        why = f"its general.architecture is {arch[:64]!r}"
    else:
        return arch
    raise UserError(f"cannot read {path}", why, "download the file again or another copy")


def _check_blocks(f: Fields, layers: Layers, tensors: Iterable[Tensor]) -> None:
    for t in tensors:
        if t.layer is not None and t.layer >= layers.n_all:
            raise f.fail(f"it has the tensor {t.name} but states {layers.n_all} layers")


def _attention(
    f: Fields, layers: Layers, stateful: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Heads per trunk layer, 0 where a recurrent state takes their place.

    Layers that read an earlier layer's cache have heads but no key-value heads of their own.
    """
    silent = set() if f.arch in PARALLEL_ARCHS else set(stateful)
    silent.update(i for i in range(layers.n_layer) if not layers.n_head_kv[i])
    heads = tuple(0 if i in silent else layers.n_head[i] for i in range(layers.n_layer))
    own = _layers_with_cache(f, layers)
    kv = tuple(
        layers.n_head_kv[i] if i < own and i not in silent else 0 for i in range(layers.n_layer)
    )
    return heads, kv


def _layers_with_cache(f: Fields, layers: Layers) -> int:
    """The first so many layers keep a key-value cache of their own."""
    if f.arch == "gemma3n":
        return 20  # fixed in llama.cpp, not in the header
    if f.arch == "gemma4":
        return layers.n_all - f.number("attention.shared_kv_layers", 0, high=layers.n_all)
    return layers.n_all


def _vocab_rows(f: Fields, tensors: Iterable[Tensor], n_tokens: int) -> int:
    embedding = next((t for t in tensors if t.name == _EMBEDDING), None)
    if embedding is None:  # drafters that borrow the target's
        return f.number("vocab_size", n_tokens)
    width = embedding.shape[0]
    return embedding.n_elements // width if width else 0


def _quant_mix(tensors: Iterable[Tensor]) -> dict[str, int]:
    mix: Counter[str] = Counter()
    for t in tensors:
        mix[t.type] += t.nbytes
    return dict(mix.most_common())


def _name(parts: Parts) -> str:
    """The stated name on one line, else the file's."""
    stated = parts.first.kv.get("general.name")
    name = stated if isinstance(stated, str) else ""
    shown = "".join(c if c.isprintable() else " " for c in name[:_MAX_NAME]).strip()
    return shown or model_stem(parts.paths[0])

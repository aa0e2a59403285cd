"""A wide model that computes the same function as a small one (see docs/wide-model.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from ..errors import UserError
from ..gguf import read_model
from . import stretch
from .files import whole
from .stretch import Dims, Filler

Progress = Callable[[int, int], None]

_ARCH = "llama"
_READERS = ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up")
_NORMS = ("attn_norm", "ffn_norm", "output_norm")


def widen(
    src: Path,
    dst: Path,
    *,
    width: int,
    ffn: int,
    heads: int,
    kv_heads: int,
    seed: int = 1,
    on_progress: Progress | None = None,
) -> None:
    """Writes a wider copy of a llama-architecture GGUF in F16, tensor by tensor.

    Memory: two copies of the largest tensor. ``dst`` appears only when it is complete.

    Args:
        src: any quantization that the ``gguf`` package can decode.
        dst: the file to write; its folder must exist.
        width, ffn, heads, kv_heads: the new sizes, none smaller than the old. With the old sizes
            the result is a plain F16 copy.
        seed: of the random filler; the same arguments give the same bytes.
        on_progress: called with bytes done and bytes in all.

    Raises:
        UserError: not such a model, sizes that do not fit, or the file cannot be written.
    """
    reader = open_model(src)
    old = dims(reader, src)
    new = Dims(width, ffn, heads, kv_heads, old.head)
    stretch.check(old, new)
    shapes = {t.name: _shape(t, old, new, src) for t in reader.tensors}
    with whole(dst) as part:
        out = gguf.GGUFWriter(part, _ARCH)
        try:
            _metadata(reader, out, old, new)
            for name, shape in shapes.items():
                kind = np.dtype(np.float32 if len(shape) == 1 else np.float16)
                out.add_tensor_info(name, shape, kind, int(np.prod(shape)) * kind.itemsize)
            out.write_header_to_file()
            out.write_kv_data_to_file()
            out.write_ti_data_to_file()
            total = sum(int(np.prod(s)) * (4 if len(s) == 1 else 2) for s in shapes.values())
            filler, done = Filler(seed), 0
            for tensor in reader.tensors:
                data = _tensor(tensor, shapes[tensor.name], old, new, filler)
                out.write_tensor_data(data)
                done += data.nbytes
                if on_progress:
                    on_progress(done, total)
        finally:
            out.close()


def dims(reader: gguf.GGUFReader, src: Path) -> Dims:
    """The sizes in a header.

    Raises:
        UserError: not a llama model with one size for all layers.
    """
    if _value(reader, "general.architecture", src) != _ARCH:
        raise _foreign(src, "its architecture is not llama")
    width = _integer(reader, "embedding_length", src)
    heads = _integer(reader, "attention.head_count", src)
    head = width // heads
    if f"{_ARCH}.attention.key_length" in reader.fields:
        head = _integer(reader, "attention.key_length", src)
        if _integer(reader, "attention.value_length", src) != head:
            raise _foreign(src, "its key and value heads differ in size")
    kv_heads = _integer(reader, "attention.head_count_kv", src)
    if heads % kv_heads:
        raise _foreign(src, "its heads do not form equal groups")
    return Dims(width, _integer(reader, "feed_forward_length", src), heads, kv_heads, head)


def counts(reader: gguf.GGUFReader, src: Path) -> tuple[int, int]:
    """Layers and vocabulary entries.

    Raises:
        UserError: the header does not say, or there is no embedding.
    """
    for tensor in reader.tensors:
        if tensor.name == "token_embd.weight":
            return _integer(reader, "block_count", src), int(tensor.shape[-1])
    raise _foreign(src, "it has no token embedding")


def open_model(src: Path) -> gguf.GGUFReader:
    """The file, checked and mapped.

    Raises:
        UserError: missing, damaged or split.
    """
    # Our own reader first: it checks every number of the header before it is used.
    if len(read_model(src).parts) > 1:
        raise _foreign(src, "it is split into several files")
    return gguf.GGUFReader(src)


def _foreign(src: Path, why: str) -> UserError:
    return UserError(
        f"cannot widen {src.name}", why, "use a plain llama model such as SmolLM2-135M-Instruct"
    )


def _value(reader: gguf.GGUFReader, key: str, src: Path) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise _foreign(src, f"its header lacks {key}")
    return field.contents()


def _integer(reader: gguf.GGUFReader, key: str, src: Path) -> int:
    value = _value(reader, f"{_ARCH}.{key}", src)
    if not isinstance(value, int) or value <= 0:
        raise _foreign(src, f"its {key} is not one positive number")
    return value


def _part(name: str) -> str:
    """``ffn_up`` for ``blk.3.ffn_up.weight``; the whole name for what is no weight."""
    stem, _, kind = name.rpartition(".")
    return stem.rpartition(".")[2] if kind == "weight" else name


def _shape(tensor: gguf.ReaderTensor, old: Dims, new: Dims, src: Path) -> tuple[int, ...]:
    """The new shape in numpy order, with the old one checked against the header."""
    shape = tuple(int(n) for n in reversed(tensor.shape))
    part = _part(tensor.name)
    rows = {
        "attn_q": ("heads", True),
        "attn_k": ("kv_heads", True),
        "attn_v": ("kv_heads", True),
        "ffn_gate": ("ffn", False),
        "ffn_up": ("ffn", False),
    }
    if part in rows:
        name, per_head = rows[part]
        unit = old.head if per_head else 1
        want: tuple[int, ...] = (getattr(old, name) * unit, old.width)
        result: tuple[int, ...] = (getattr(new, name) * unit, new.width)
    elif part == "attn_output":
        want, result = (old.width, old.heads * old.head), (new.width, new.heads * new.head)
    elif part == "ffn_down":
        want, result = (old.width, old.ffn), (new.width, new.ffn)
    elif part in ("token_embd", "output"):
        want, result = (shape[0], old.width), (shape[0], new.width)
    elif part in _NORMS:
        want, result = (old.width,), (new.width,)
    elif part == "rope_freqs":
        want = result = (shape[0],)
    else:
        raise _foreign(src, f"it has a tensor {tensor.name} that has no place in a wider copy")
    if shape != want:
        raise _foreign(src, f"its tensor {tensor.name} is {shape}, the header says {want}")
    return result


def _tensor(
    tensor: gguf.ReaderTensor, shape: tuple[int, ...], old: Dims, new: Dims, filler: Filler
) -> npt.NDArray[Any]:
    data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    part = _part(tensor.name)
    if part in _NORMS:
        return stretch.norm(data, new.width)
    if part == "rope_freqs":
        return data
    full = (shape[0], shape[1])
    q_heads, kv_heads = stretch.head_positions(old, new)
    if part in _READERS:
        if part == "attn_q":
            rows = stretch.elements(q_heads, old.head)
        elif part in ("attn_k", "attn_v"):
            rows = stretch.elements(kv_heads, old.head)
        else:
            rows = np.arange(old.ffn)
        return stretch.reader(data, rows, full, filler)
    cols = stretch.elements(q_heads, old.head) if part == "attn_output" else None
    return stretch.writer(data, cols, full)


def _metadata(reader: gguf.GGUFReader, out: gguf.GGUFWriter, old: Dims, new: Dims) -> None:
    """Copies the header, tokenizer and chat template included, and puts in the new sizes."""
    integer, real, text = (
        gguf.GGUFValueType.UINT32,
        gguf.GGUFValueType.FLOAT32,
        gguf.GGUFValueType.STRING,
    )
    epsilon = f"{_ARCH}.attention.layer_norm_rms_epsilon"
    changed: dict[str, tuple[Any, gguf.GGUFValueType]] = {
        f"{_ARCH}.embedding_length": (new.width, integer),
        f"{_ARCH}.feed_forward_length": (new.ffn, integer),
        f"{_ARCH}.attention.head_count": (new.heads, integer),
        f"{_ARCH}.attention.head_count_kv": (new.kv_heads, integer),
        # Needed as heads * head need not equal width any more.
        f"{_ARCH}.attention.key_length": (new.head, integer),
        f"{_ARCH}.attention.value_length": (new.head, integer),
        epsilon: (_value(reader, epsilon, Path()) * old.width / new.width, real),
        "general.file_type": (int(gguf.LlamaFileType.MOSTLY_F16), integer),
    }
    name = reader.get_field("general.name")
    if name is not None and new != old:
        changed["general.name"] = (f"{name.contents()} (widened to {new.width})", text)
    dropped = ("general.architecture", "general.quantization_version", "general.size_label")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in dropped or field.name in changed:
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(field.name, field.contents(), kind, sub_type=sub)
    for key, (value, kind) in changed.items():
        out.add_key_value(key, value, kind)

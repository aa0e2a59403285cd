"""Splitting a model into parts that llama.cpp loads by the first one."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..errors import UserError
from ..model import Tensor
from .foreign import MAGIC
from .ggml_types import GGML_TYPES
from .header import Header, read_header
from .parts import MAX_PARTS, model_stem, part_path

_COPY: Final = 4 * 1024 * 1024
_VERSION: Final = 3
_DEFAULT_ALIGNMENT: Final = 32
_TYPE_NUMBERS: Final = {t.name: number for number, t in GGML_TYPES.items()}
_UINT16, _INT32 = 2, 5


def split_gguf(source: Path, folder: Path, count: int) -> Path:
    """Write ``source`` as ``count`` parts into ``folder``, which is created; tensors stay in order.

    The first part keeps all header fields, as llama.cpp reads them from there only.

    Returns:
        The first part, ``folder/NAME-00001-of-0000N.gguf``.

    Raises:
        UserError: the source cannot be read, is split already or has fewer than ``count`` tensors.
        OSError: a part cannot be written.
    """
    header = read_header(source)
    total = len(header.tensors)
    why = ""
    if "split.count" in header.kv:
        why = "it is a part of a split model already"
    elif not 1 <= count <= min(total, MAX_PARTS):
        why = f"its {total} tensors do not make {count} parts"
    if why:
        raise UserError(f"cannot split {source}", why, "give a whole model and fewer parts")
    folder.mkdir(parents=True, exist_ok=True)
    paths = [part_path(folder / model_stem(source), i, count) for i in range(count)]
    with source.open("rb") as src:
        for i, path in enumerate(paths):
            share = header.tensors[i * total // count : (i + 1) * total // count]
            with path.open("wb") as out:
                _write_part(out, src, header, share, index=i, count=count)
    return paths[0]


def _write_part(
    out: io.BufferedWriter,
    src: io.BufferedReader,
    header: Header,
    tensors: Sequence[Tensor],
    *,
    index: int,
    count: int,
) -> None:
    first = index == 0
    alignment = header.alignment if first else _DEFAULT_ALIGNMENT
    n_fields = 3 + (len(header.kv) if first else 0)
    out.write(MAGIC + struct.pack("<IQQ", _VERSION, len(tensors), n_fields))
    if first:
        src.seek(header.fields_begin)
        _copy(src, out, header.fields_end - header.fields_begin)
    out.write(_string("split.no") + struct.pack("<IH", _UINT16, index))
    out.write(_string("split.count") + struct.pack("<IH", _UINT16, count))
    out.write(_string("split.tensors.count") + struct.pack("<Ii", _INT32, len(header.tensors)))
    offset = 0
    for t in tensors:
        out.write(_string(t.name))
        out.write(struct.pack(f"<I{len(t.shape)}Q", len(t.shape), *t.shape))
        out.write(struct.pack("<IQ", _TYPE_NUMBERS[t.type], offset))
        offset += _aligned(t.nbytes, alignment)
    out.write(bytes(_aligned(out.tell(), alignment) - out.tell()))
    for t in tensors:
        src.seek(t.offset)
        _copy(src, out, t.nbytes)
        out.write(bytes(_aligned(t.nbytes, alignment) - t.nbytes))


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _aligned(n: int, alignment: int) -> int:
    return (n + alignment - 1) // alignment * alignment


def _copy(src: io.BufferedReader, out: io.BufferedWriter, n: int) -> None:
    while n:
        piece = src.read(min(n, _COPY))
        if not piece:
            raise OSError(f"{src.name} became shorter while it was copied")
        out.write(piece)
        n -= len(piece)

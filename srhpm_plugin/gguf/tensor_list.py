"""The list of tensors in a header, and where their data lies."""

from __future__ import annotations

import struct
from typing import Final

from ..model import Tensor
from .cursor import Cursor
from .ggml_types import GGML_TYPES, REMOVED_TYPES, GgmlType

MAX_TENSORS: Final = 2**17
MAX_NAME: Final = 63  # ggml's buffer of 64 with its terminating zero
MAX_DIMS: Final = 4
_INT64_MAX: Final = 2**63 - 1

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_CONVERT = "quantize the original model again with a current llama.cpp"


def read_tensors(cur: Cursor, count: int, alignment: int) -> tuple[tuple[Tensor, ...], int]:
    """Read ``count`` tensor entries; returns them and the offset of the data.

    llama.cpp wants the data of each tensor right behind the one before it, so a file with holes,
    overlaps or another order is refused here too.

    Raises:
        UserError: an entry is damaged or the data reaches beyond the file.
    """
    # an entry is at least a name's length, no dimension, a type and an offset
    cur.check_count(count, 8 + 4 + 4 + 8, "tensors", MAX_TENSORS)
    tensors: list[Tensor] = []
    names: set[str] = set()
    next_offset = 0
    for i in range(count):
        cur.where = f"tensor {i} of {count}"
        name = _name(cur)
        if name in names:
            raise cur.fail(f"the tensor {name} is there twice")
        names.add(name)
        cur.where = f"the tensor {name}"
        shape = _shape(cur)
        kind = _type(cur)
        nbytes = _nbytes(cur, shape, kind)
        offset = int(cur.unpack(_U64))
        _check_offset(cur, offset, next_offset, alignment)
        next_offset = offset + _aligned(nbytes, alignment)
        tensors.append(Tensor(name, shape, kind.name, nbytes, 0, offset))
    data = _aligned(cur.tell(), alignment)
    if tensors:
        end = data + tensors[-1].offset + tensors[-1].nbytes
        if end > cur.size:
            raise cur.fail(
                f"the file is truncated or damaged: its tensors end at byte {end}, "
                f"the file at {cur.size}"
            )
    placed = (Tensor(t.name, t.shape, t.type, t.nbytes, 0, data + t.offset) for t in tensors)
    return tuple(placed), data


def _aligned(n: int, alignment: int) -> int:
    return (n + alignment - 1) // alignment * alignment


def _name(cur: Cursor) -> str:
    length = int(cur.unpack(_U64))
    cur.check(length)
    if not 0 < length <= MAX_NAME:
        raise cur.fail(f"{cur.where} has a name of {length} bytes; 1 to {MAX_NAME} are possible")
    try:
        return cur.take(length).decode("utf-8")
    except UnicodeDecodeError as e:
        raise cur.fail(f"the name of {cur.where} is not UTF-8") from e


def _shape(cur: Cursor) -> tuple[int, ...]:
    n_dims = int(cur.unpack(_U32))
    if n_dims > MAX_DIMS:
        raise cur.fail(f"{cur.where} has {n_dims} dimensions; {MAX_DIMS} are possible")
    shape = tuple(int(cur.unpack(_U64)) for _ in range(n_dims)) or (1,)
    total = 1
    for dim in shape:
        # an empty dimension must not hide an absurd one
        total *= max(dim, 1)
        if total > _INT64_MAX:
            raise cur.fail(f"{cur.where} has an absurd shape {'x'.join(map(str, shape))}")
    return shape


def _type(cur: Cursor) -> GgmlType:
    number = int(cur.unpack(_U32))
    if number in GGML_TYPES:
        return GGML_TYPES[number]
    if number in REMOVED_TYPES:
        raise cur.fail(
            f"{cur.where} has the type {REMOVED_TYPES[number]}, which llama.cpp no longer loads",
            _CONVERT,
        )
    raise cur.fail(
        f"{cur.where} has the unknown type {number}: the file is damaged, or for another program",
        "download the file again, or a quantization that llama.cpp loads",
    )


def _nbytes(cur: Cursor, shape: tuple[int, ...], kind: GgmlType) -> int:
    if shape[0] % kind.block:
        raise cur.fail(
            f"{cur.where} has rows of {shape[0]} weights, "
            f"not a multiple of {kind.name}'s {kind.block}"
        )
    nbytes = shape[0] // kind.block * kind.nbytes
    for dim in shape[1:]:
        nbytes *= dim
    return nbytes


def _check_offset(cur: Cursor, offset: int, expected: int, alignment: int) -> None:
    if offset == expected:
        return
    if offset % alignment:
        why = f"is not aligned to {alignment} bytes"
    elif offset < expected:
        why = "overlaps the tensors before it"
    else:
        why = "leaves a hole behind the tensors before it"
    raise cur.fail(f"the data of {cur.where} {why} (offset {offset}, expected {expected})")

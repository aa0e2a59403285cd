"""The header of one GGUF file: fields and tensor list, every number checked before use."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ..errors import UserError
from ..model import Tensor
from .cursor import MAX_HEADER, MAX_STRING, Cursor
from .foreign import HEAD, MAGIC, refuse_foreign
from .tensor_list import read_tensors
from .values import LongString, NumberArray, Value

MAX_FIELDS: Final = 65536
MAX_KEY: Final = 65535  # the GGUF specification's limit
MAX_ARRAY_STRINGS: Final = 2**20
"""Most strings in one array; the largest vocabularies have about 260 000 tokens and twice as many
merges."""
MAX_TOTAL_STRINGS: Final = 2**21
MAX_TEXT: Final = 16 * 1024 * 1024
"""Bytes of strings kept in all; chat templates have tens of kilobytes."""
MAX_INLINE: Final = 1024
"""Longest number array whose items are kept; per-layer values have at most 512."""

_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_BOOL = 7
_NUMBERS: dict[int, tuple[str, struct.Struct]] = {
    0: ("uint8", struct.Struct("<B")),
    1: ("int8", struct.Struct("<b")),
    2: ("uint16", struct.Struct("<H")),
    3: ("int16", struct.Struct("<h")),
    4: ("uint32", _U32),
    5: ("int32", struct.Struct("<i")),
    6: ("float32", struct.Struct("<f")),
    7: ("bool", struct.Struct("<?")),
    10: ("uint64", _U64),
    11: ("int64", struct.Struct("<q")),
    12: ("float64", struct.Struct("<d")),
}


@dataclass(frozen=True)
class Header:
    """What one file says of itself.

    Attributes:
        path: the file.
        version: GGUF version, 2 or 3.
        kv: the fields in file order.
        tensors: the tensors in file order; ``offset`` counts from the start of the file.
        alignment: bytes to which tensors are aligned.
        data_offset: offset of the first tensor's data.
        file_size: bytes.
        fields_begin, fields_end: where the fields lie in the file.
    """

    path: Path
    version: int
    kv: Mapping[str, Value] = field(repr=False)
    tensors: tuple[Tensor, ...] = field(repr=False)
    alignment: int
    data_offset: int
    file_size: int
    fields_begin: int
    fields_end: int


def is_gguf(path: Path) -> bool:
    """Whether the file starts with GGUF's magic, whatever its name; ``False`` if unreadable."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return False  # opening a pipe or device could block
        with Path(path).open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except (OSError, ValueError):
        return False


def read_header(path: Path, keep: Collection[str] = ()) -> Header:
    """Read the header of one file.

    Args:
        path: a GGUF file; the name does not matter.
        keep: names of fields whose string arrays keep their items.

    Raises:
        UserError: the file is missing, not readable, not a GGUF, truncated or damaged.
    """
    path = Path(path)
    what = f"cannot read {path}"
    try:
        _refuse_special(path)
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            refuse_foreign(file.read(HEAD), path)
            file.seek(0)
            return _read(Cursor(file, size, path), path, keep)
    except FileNotFoundError as e:
        raise UserError(what, "no such file", "run `srhpm-plugin models` to list those here") from e
    except PermissionError as e:
        raise UserError(what, "permission denied", "give your user the right to read it") from e
    except (OSError, ValueError) as e:  # ValueError: a path with a NUL in it
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e)
        raise UserError(what, reason, "check the path and the disk it is on") from e


def _refuse_special(path: Path) -> None:
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        inside = sorted(p.name for p in path.iterdir() if p.suffix == ".gguf")
        do = f"give a file in it, such as {path / inside[0]}" if inside else "give a .gguf file"
        raise UserError(f"cannot read {path}", "it is a directory", do)
    if not stat.S_ISREG(mode):
        raise UserError(f"cannot read {path}", "it is not a regular file", "give a .gguf file")


def _read(cur: Cursor, path: Path, keep: Collection[str]) -> Header:
    cur.skip(len(MAGIC))
    version = int(cur.unpack(_U32))
    n_tensors = int(cur.unpack(_U64))
    n_fields = int(cur.unpack(_U64))
    begin = cur.tell()
    kv, alignment = _Fields(cur, keep).read(n_fields)
    end = cur.tell()
    tensors, data_offset = read_tensors(cur, n_tensors, alignment)
    return Header(
        path=path,
        version=version,
        kv=kv,
        tensors=tensors,
        alignment=alignment,
        data_offset=data_offset,
        file_size=cur.size,
        fields_begin=begin,
        fields_end=end,
    )


class _Fields:
    """Reads the key-value part."""

    def __init__(self, cur: Cursor, keep: Collection[str]) -> None:
        self._cur = cur
        self._keep = keep
        self._strings_left = MAX_TOTAL_STRINGS
        self._text_left = MAX_TEXT

    def read(self, count: int) -> tuple[dict[str, Value], int]:
        """``count`` fields, and the alignment they state."""
        cur = self._cur
        # a field is at least an empty key's length, a type and one byte
        cur.check_count(count, 8 + 4 + 1, "header fields", MAX_FIELDS)
        kv: dict[str, Value] = {}
        alignment = 32
        for i in range(count):
            cur.where = f"header field {i}"
            key = self._key(i)
            if key in kv:
                raise cur.fail(f"the header field {key} is there twice")
            cur.where = f"the header field {key}"
            kind = int(cur.unpack(_U32))
            kv[key] = value = self._value(key, kind)
            if key == "general.alignment":
                if kind != 4 or not isinstance(value, int):
                    raise cur.fail("general.alignment is not a uint32")
                if value == 0 or value & (value - 1) or value > MAX_HEADER:
                    raise cur.fail(f"its alignment of {value} is not a usable power of two")
                alignment = value
        return kv, alignment

    def _key(self, i: int) -> str:
        cur = self._cur
        length = int(cur.unpack(_U64))
        cur.check(length)
        if not 0 < length <= MAX_KEY:
            raise cur.fail(f"the name of header field {i} has {length} bytes")
        try:
            return cur.take(length).decode("utf-8")
        except UnicodeDecodeError as e:
            raise cur.fail(f"the name of header field {i} is not UTF-8") from e

    def _value(self, key: str, kind: int) -> Value:
        cur = self._cur
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        if kind in _NUMBERS:
            return cur.unpack(_NUMBERS[kind][1])
        raise cur.fail(f"{cur.where} has the unknown type {kind}")

    def _string(self) -> str | LongString:
        cur = self._cur
        length = int(cur.unpack(_U64))
        if length > min(MAX_STRING, self._text_left):
            cur.skip(length)
            return LongString(length)
        self._text_left -= length
        return cur.take(length).decode("utf-8", "replace")

    def _array(self, key: str) -> Value:
        cur = self._cur
        kind = int(cur.unpack(_U32))
        count = int(cur.unpack(_U64))
        if kind == _STRING:
            cur.check_count(count, 8, f"strings in {key}", MAX_ARRAY_STRINGS)
            self._strings_left -= count
            if self._strings_left < 0:
                raise cur.fail(f"it claims more than {MAX_TOTAL_STRINGS} strings in all")
            return cur.string_array(count, key in self._keep)
        if kind not in _NUMBERS:
            # an array of arrays too: llama.cpp takes none, so nesting never has to be followed
            raise cur.fail(f"{cur.where} is an array of the unsupported type {kind}")
        name, form = _NUMBERS[kind]
        cur.check_count(count, form.size, f"numbers in {key}", MAX_HEADER)
        if count > MAX_INLINE:
            cur.skip(count * form.size)
            return NumberArray(name, count)
        raw = cur.take(count * form.size)
        return NumberArray(name, count, tuple(v for (v,) in form.iter_unpack(raw)))

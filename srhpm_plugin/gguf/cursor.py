"""A forward reader over a file's first part that checks before it reads and reads in chunks."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ..errors import UserError
from .values import StringArray

CHUNK: Final = 256 * 1024
"""Bytes per read; also the most that is read of what follows the header."""

MAX_HEADER: Final = 128 * 1024 * 1024
"""Longest header accepted. The largest vocabularies with their merges take about 30 MB."""

MAX_STRING: Final = 1024 * 1024
"""Longest string that is read; longer ones are skipped (fields) or refused (array items)."""

DOWNLOAD_AGAIN: Final = "download the file again"

_U64 = struct.Struct("<Q")


class Cursor:
    """Reads little-endian values from ``file``, never past its end and never more than asked.

    Args:
        file: an unbuffered binary file at position 0.
        size: its size in bytes.
        path: for messages.

    Attributes:
        where: what is being read, in words; part of the message when the file ends there.
    """

    def __init__(self, file: io.RawIOBase, size: int, path: Path) -> None:
        self._file = file
        self._path = path
        self._buf = b""
        self._base = 0  # file offset of _buf[0]
        self._at = 0  # next byte, as index into _buf
        self.size = size
        self.where = "the header"

    def tell(self) -> int:
        """Offset in the file of the next byte."""
        return self._base + self._at

    @property
    def remaining(self) -> int:
        """Bytes from here to the end of the file."""
        return self.size - self.tell()

    def fail(self, why: str, do: str | None = DOWNLOAD_AGAIN) -> UserError:
        """The error for this file; to be raised by the caller."""
        return UserError(f"cannot read {self._path}", why, do)

    def check(self, n: int) -> None:
        """Raise unless ``n`` more bytes are in the file and within the longest header."""
        if n > self.remaining:
            raise self.fail(
                f"the file is truncated or damaged: {self.where} needs {n} bytes at offset "
                f"{self.tell()}, the file ends at {self.size}"
            )
        if self.tell() + n > MAX_HEADER:
            raise self.fail(
                f"{self.where} reaches beyond {MAX_HEADER // 2**20} MiB, "
                "further than any model's header does"
            )

    def check_count(self, count: int, least: int, what: str, limit: int) -> None:
        """Raise unless ``count`` items of at least ``least`` bytes each can be in the file."""
        if count > self.remaining // least:
            raise self.fail(
                f"the file is truncated or damaged: it claims {count} {what}, "
                f"and {self.remaining} bytes are left"
            )
        if count > limit:
            raise self.fail(f"it claims {count} {what}; at most {limit} are read")

    def _need(self, n: int) -> None:
        """Make ``n`` bytes available at ``_buf[_at]``."""
        have = len(self._buf) - self._at
        if have >= n:
            return
        self.check(n)
        parts = [self._buf[self._at :]]
        self._base += self._at
        self._at = 0
        end = min(self.size, self._base + have + max(n - have, CHUNK))
        while (missing := end - self._base - have) > 0:
            piece = self._file.read(missing)
            if not piece:  # another process cut the file short
                self._buf = b"".join(parts)
                self.size = self._base + have
                self.check(n)
                return
            parts.append(piece)
            have += len(piece)
        self._buf = b"".join(parts)

    def take(self, n: int) -> bytes:
        """The next ``n`` bytes; ``n`` is at most :data:`MAX_STRING`."""
        self._need(n)
        start = self._at
        self._at += n
        return self._buf[start : self._at]

    def unpack(self, form: struct.Struct) -> int | float | bool:
        """One value of the given form."""
        self._need(form.size)
        (value,) = form.unpack_from(self._buf, self._at)
        self._at += form.size
        assert isinstance(value, int | float)
        return value

    def skip(self, n: int) -> None:
        """Pass over ``n`` bytes without reading those not read yet."""
        self.check(n)
        self._at += n
        if self._at > len(self._buf):
            self._base += self._at
            self._at = 0
            self._buf = b""
            self._file.seek(self._base)

    def string_array(self, count: int, keep: bool) -> StringArray:
        """``count`` strings, hashed; ``count`` has been checked by :meth:`check_count`."""
        digest = hashlib.sha256()
        items: list[bytes] = []
        begin = self.tell()
        left = count
        while left:
            left = self._strings_in_buffer(left, items.append if keep else None, digest.update)
            if left:
                self._need(8)
                (n,) = _U64.unpack_from(self._buf, self._at)
                if n > MAX_STRING and n <= self.remaining:
                    raise self.fail(f"{self.where} holds an item of {n} bytes")
                self._need(8 + n)
        return StringArray(
            count, self.tell() - begin, digest.hexdigest(), tuple(items) if keep else None
        )

    def _strings_in_buffer(
        self,
        left: int,
        keep: Callable[[bytes], None] | None,
        hash_bytes: Callable[[memoryview], None],
    ) -> int:
        """Pass over the strings that lie in the buffer as a whole; returns how many are left.

        This loop runs some hundred thousand times per model: no call but ``unpack_from``.
        """
        buf, pos, end = self._buf, self._at, len(self._buf)
        last = end - 8
        unpack = _U64.unpack_from
        if keep is None:
            while left and pos <= last:
                after = pos + 8 + unpack(buf, pos)[0]
                if after > end:
                    break
                pos = after
                left -= 1
        else:
            while left and pos <= last:
                after = pos + 8 + unpack(buf, pos)[0]
                if after > end:
                    break
                keep(buf[pos + 8 : after])
                pos = after
                left -= 1
        hash_bytes(memoryview(buf)[self._at : pos])
        self._at = pos
        return left

"""What a header field can hold, in a form whose size does not depend on what the file claims."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StringArray:
    """An array of strings: counted and hashed, its items kept only when asked for.

    Attributes:
        count: number of strings.
        nbytes: bytes of the array in the file, the 8-byte length before each string included.
        sha256: hex digest over those bytes; equal digests mean equal arrays.
        items: the strings as bytes (they need not be UTF-8), or ``None`` when not kept.
    """

    count: int
    nbytes: int
    sha256: str
    items: tuple[bytes, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class NumberArray:
    """An array of numbers or booleans.

    Attributes:
        type: element type as GGUF names it, e.g. ``uint32``.
        count: number of elements.
        items: the elements of a short array (per-layer values), or ``None`` for a long one.
    """

    type: str
    count: int
    items: tuple[int | float | bool, ...] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class LongString:
    """A string too long to be worth keeping (an embedded tokenizer.json).

    Attributes:
        nbytes: its length in the file.
    """

    nbytes: int


Scalar = str | int | float | bool
Value = Scalar | LongString | StringArray | NumberArray

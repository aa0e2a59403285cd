"""Typed access to header fields, with limits; a bad value becomes a UserError naming the field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import UserError
from .values import NumberArray, Value

REBUILD: Final = "convert the model again with a current llama.cpp or download another copy"
UINT32: Final = 2**32 - 1


class Fields:
    """The fields of a model, those of its architecture by their name without prefix.

    Args:
        path: for messages.
        kv: all header fields.
        arch: the prefix of the architecture's fields.
    """

    def __init__(self, path: Path, kv: Mapping[str, Value], arch: str) -> None:
        self._path = path
        self._kv = kv
        self.arch = arch

    def fail(self, why: str, do: str = REBUILD) -> UserError:
        """The error for this model; to be raised by the caller."""
        return UserError(f"cannot read {self._path}", why, do)

    def has(self, name: str) -> bool:
        """Whether the architecture's field is there."""
        return f"{self.arch}.{name}" in self._kv

    def number(
        self, name: str, default: int | None = None, low: int = 0, high: int = UINT32
    ) -> int:
        """A whole number of the architecture; required unless there is a ``default``."""
        key = f"{self.arch}.{name}"
        value = self._kv.get(key)
        if value is None:
            if default is None:
                raise self.fail(f"its header lacks {key}")
            return default
        return self._whole(key, value, low, high)

    def per_layer(
        self, name: str, n: int, default: tuple[int, ...], high: int = UINT32
    ) -> tuple[int, ...]:
        """A number for each of ``n`` layers: an array of that length or one number for all."""
        key = f"{self.arch}.{name}"
        value = self._kv.get(key)
        if value is None:
            return default
        if not isinstance(value, NumberArray):
            return (self._whole(key, value, 0, high),) * n
        if value.count != n:
            raise self.fail(f"{key} has {value.count} entries for {n} layers")
        return tuple(self._whole(key, item, 0, high) for item in value.items or ())

    def flags(self, name: str, shortest: int, n: int) -> tuple[bool, ...] | None:
        """An array of yes or no for ``shortest`` to ``n`` layers, ``False`` for the rest.

        ``None`` when the field is missing or no array.
        """
        key = f"{self.arch}.{name}"
        value = self._kv.get(key)
        if not isinstance(value, NumberArray):
            return None
        if not shortest <= value.count <= n or value.items is None:
            raise self.fail(f"{key} has {value.count} entries for {n} layers")
        flags = tuple(bool(item) for item in value.items)
        return flags + (False,) * (n - len(flags))

    def _whole(self, key: str, value: Value | int | float | bool, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(f"{key} is not a whole number")
        if not low <= value <= high:
            raise self.fail(f"{key} is {value}; {low} to {high} is possible")
        return value

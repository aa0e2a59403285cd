"""The body of a request as typed, bounded fields: nothing else looks at what a client sent."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from starlette.requests import Request

from .errors import ApiError

_MOST_ITEMS: Final = 1 << 16
_NAME: Final = 512
"""Longest name of a model or tool, in characters."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_LARGE: Final = 1 << 20
_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}


async def read_body(request: Request) -> Fields:
    """The JSON object of a request, whatever its content type says (as Ollama does: ``curl -d``).

    Raises:
        ApiError: 400, there is none.
    """
    raw = await request.body()
    if len(raw) > _LARGE:  # pictures: others are answered meanwhile
        return await asyncio.to_thread(_parsed, raw)
    return _parsed(raw)


def _parsed(raw: bytes) -> Fields:
    if not raw.strip():
        raise ApiError(400, "missing request body")
    try:
        data = json.loads(raw, parse_constant=_no_number)
        if isinstance(data, dict) and _SURROGATE.search(raw):
            data = _mended(data)  # halves of a pair are no text and cannot be sent on
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the request is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise ApiError(400, "the request must be a JSON object")
    return Fields(data)


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _mended(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_mended(v) for v in value]
    if isinstance(value, dict):
        return {_mended(k): _mended(v) for k, v in value.items()}
    return value


class Fields:
    """A JSON object whose fields are asked for by type. ``null`` is as if a field were absent.

    Args:
        data: the object.
        where: put before names in messages, e.g. ``messages[3].``.
    """

    def __init__(self, data: Mapping[str, Any], where: str = "") -> None:
        self._data = data
        self._where = where

    def fail(self, name: str, what: str) -> ApiError:
        """The error for a field; to be raised by the caller."""
        return ApiError(400, f"{self._where}{name} must be {what}")

    def raw(self, name: str) -> Any:
        """As it is."""
        return self._data.get(name)

    def _get(self, name: str, kind: type, default: Any) -> Any:
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.fail(name, _WORDS[kind])
        return value

    def text(self, name: str, default: str = "") -> str:
        """A string of any length (the size of the whole body is limited)."""
        value: str = self._get(name, str, default)
        return value

    def name(self, name: str, default: str = "") -> str:
        """A string of one line and some hundred characters."""
        value = self.text(name, default)
        if len(value) > _NAME or not value.isprintable():
            raise self.fail(name, f"a printable string of at most {_NAME} characters")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value: bool = self._get(name, bool, default)
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A whole number within limits."""
        value = self._data.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(name, f"a whole number from {low} to {high}")
        return value

    def items(self, name: str, most: int = _MOST_ITEMS) -> list[Any]:
        """A list of at most so many items; empty when absent."""
        value: list[Any] = self._get(name, list, [])
        if len(value) > most:
            raise self.fail(name, f"a list of at most {most} items")
        return value

    def texts(self, name: str, most: int = _MOST_ITEMS) -> tuple[str, ...]:
        """A list of strings."""
        items = self.items(name, most)
        if not all(isinstance(item, str) for item in items):
            raise self.fail(name, "a list of strings")
        return tuple(items)

    def object(self, name: str) -> dict[str, Any] | None:
        """An object as it is; ``None`` when absent."""
        value: dict[str, Any] | None = self._get(name, dict, None)
        return value

    def objects(self, name: str, most: int = _MOST_ITEMS) -> list[Fields]:
        """A list of objects."""
        items = self.items(name, most)
        if not all(isinstance(item, dict) for item in items):
            raise self.fail(name, "a list of objects")
        return [Fields(item, f"{self._where}{name}[{i}].") for i, item in enumerate(items)]

    def names(self, name: str) -> dict[str, str]:
        """An object of strings."""
        items = self.object(name) or {}
        if not all(isinstance(item, str) for item in items.values()):
            raise self.fail(name, "an object of strings")
        return items

    def inner(self, name: str) -> Fields:
        """An object as fields; without any when absent."""
        return Fields(self.object(name) or {}, f"{self._where}{name}.")

"""How long a model stays loaded, in the forms that Ollama's users write (``5m``, ``-1``, ``0``)."""

from __future__ import annotations

import math
import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
FOR_EVER = -1.0
_LONGEST = 1e9  # thirty years: a longer time is for ever, and dates stay within the calendar


def seconds(value: object) -> float:
    """A duration as seconds; :data:`FOR_EVER` for every negative one.

    Args:
        value: a number of seconds, or text: such a number, or Go's form, e.g. ``1h30m``.

    Raises:
        ValueError: it is neither.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("a duration is a number of seconds or a text like 5m")
    found = _parsed(value.strip()) if isinstance(value, str) else float(value)
    if math.isnan(found):
        raise ValueError("a duration is a number of seconds or a text like 5m")
    return FOR_EVER if found < 0 or found > _LONGEST else found


def _parsed(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f"no duration: {text[:40]!r} (write 5m, 1h30m or seconds)")
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)

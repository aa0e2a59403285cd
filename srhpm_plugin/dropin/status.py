"""The last launches through drop-ins, for ``srhpm-plugin status``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def launches(count: int) -> list[dict[str, Any]]:
    """The last ``count`` launches, newest first, as ``status --json`` has them."""
    return []


def launch_lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Launches for people, a line each."""
    return []

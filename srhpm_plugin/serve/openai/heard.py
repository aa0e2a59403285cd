"""What an answer tells of its speed while it passes."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from ..stats import Finished, Outcome, finished
from . import spoken


class Heard:
    """Listens to the pieces of one answer."""

    def __init__(self) -> None:
        self._since = time.monotonic()
        self._first: float | None = None
        self._last = self._since
        self._timings: dict[str, Any] | None = None
        self._tokens = 0

    def asked(self) -> None:
        """The engine has the request now."""
        self._since = time.monotonic()

    def piece(self, piece: bytes) -> None:
        """The next whole lines, or all of it."""
        self._last = time.monotonic()
        self._first = self._first or self._last
        self._timings = spoken.timings(piece) or self._timings
        self._tokens = spoken.tokens(piece) or self._tokens

    def finished(
        self, model: str, route: str, outcome: Outcome, seconds: float, load_seconds: float
    ) -> Finished:
        """The request as statistics have it.

        Some answers (Anthropic's, whole ones of ``/v1/responses``) have no timings: there the
        stream's own pace is taken, or the whole time, in which the prompt was read too.
        """
        one = finished(
            model, route, self._timings, outcome=outcome, seconds=seconds, load_seconds=load_seconds
        )
        if self._timings is not None or not self._tokens:
            return one
        begun = self._first if self._first and self._first < self._last else self._since
        return replace(one, tokens=self._tokens, decode_ms=(self._last - begun) * 1000)

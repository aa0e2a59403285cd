"""How fast models speak at this moment, from the pieces of answers that pass."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

_WINDOW = 5.0  # seconds: long enough to be steady, short enough to be now


class Pulse:
    """Counts tokens of the last seconds by model.

    Args:
        now: a clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._beats: dict[str, deque[tuple[float, int]]] = {}

    def beat(self, model: str, tokens: int = 1) -> None:
        """Tokens of an answer have just passed."""
        beats = self._beats.setdefault(model, deque())
        beats.append((self._now(), tokens))
        self._forget(beats)

    def models(self) -> Sequence[str]:
        """The names that were counted."""
        return tuple(self._beats)

    def tok_s(self, model: str) -> float | None:
        """Tokens per second, all answers together; ``None`` where nothing passes."""
        beats = self._beats.get(model)
        if beats is None:
            return None
        self._forget(beats)
        if len(beats) < 2:
            return None
        first, last = beats[0][0], self._now()
        # The first one's time is where counting begins.
        passed = sum(n for _, n in beats) - beats[0][1]
        return passed / (last - first) if last > first else None

    def _forget(self, beats: deque[tuple[float, int]]) -> None:
        oldest = self._now() - _WINDOW
        while beats and beats[0][0] < oldest:
            beats.popleft()

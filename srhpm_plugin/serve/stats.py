"""What requests came to: speed, acceptance, errors. In memory only, since the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal

from .pulse import Pulse

Outcome = Literal["done", "cancelled", "failed", "refused"]

_KEPT_REQUESTS = 200
_KEPT_ERRORS = 50


def _now() -> datetime:
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Finished:
    """One request that has ended.

    Attributes:
        model: the name asked for.
        route: e.g. ``/api/chat``.
        outcome: ``done``; ``cancelled``: the client hung up; ``failed``: an error of ours or the
            server's; ``refused``: busy.
        seconds: from arrival to the last byte.
        load_seconds: of these, spent on loading.
        cached_tokens: of the prompt, taken from the server's cache.
        prompt_tokens, prompt_ms: read, and how long that took.
        tokens, decode_ms: generated, and how long that took.
        drafted, accepted: tokens at each position of the drafts.
        when: its end.
    """

    model: str
    route: str
    outcome: Outcome = "done"
    seconds: float = 0.0
    load_seconds: float = 0.0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    prompt_ms: float = 0.0
    tokens: int = 0
    decode_ms: float = 0.0
    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    when: datetime = field(default_factory=_now)

    @property
    def tok_s(self) -> float | None:
        """Tokens generated per second."""
        return self.tokens / self.decode_ms * 1000 if self.tokens and self.decode_ms > 0 else None


def finished(
    model: str,
    route: str,
    timings: Mapping[str, Any] | None,
    *,
    outcome: Outcome = "done",
    seconds: float = 0.0,
    load_seconds: float = 0.0,
) -> Finished:
    """A :class:`Finished` from the ``timings`` in llama-server's last message (``None``: it was
    never sent)."""
    said = timings or {}
    speculation = said.get("speculation")
    drafts = speculation if isinstance(speculation, dict) else {}
    return Finished(
        model=model,
        route=route,
        outcome=outcome,
        seconds=seconds,
        load_seconds=load_seconds,
        cached_tokens=int(_number(said.get("cache_n"))),
        prompt_tokens=int(_number(said.get("prompt_n"))),
        prompt_ms=_number(said.get("prompt_ms")),
        tokens=int(_number(said.get("predicted_n"))),
        decode_ms=_number(said.get("predicted_ms")),
        drafted=_counts(drafts.get("drafted_per_position")),
        accepted=_counts(drafts.get("accepted_per_position")),
    )


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _counts(value: object) -> tuple[int, ...]:
    return tuple(int(_number(n)) for n in value) if isinstance(value, list) else ()


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong.

    Attributes:
        model: the model it happened to; ``None`` when to none.
        text: one line, with what to do.
    """

    when: datetime
    model: str | None
    text: str


@dataclass(frozen=True)
class ModelStats:
    """Sums over a model's requests; see :class:`Finished`."""

    requests: Mapping[Outcome, int] = field(default_factory=dict)
    seconds: float = 0.0
    cached_tokens: int = 0
    prompt_tokens: int = 0
    prompt_ms: float = 0.0
    tokens: int = 0
    decode_ms: float = 0.0
    drafted: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    last_tok_s: float | None = None

    @property
    def tok_s(self) -> float | None:
        """Tokens generated per second, over all requests."""
        return self.tokens / self.decode_ms * 1000 if self.tokens and self.decode_ms > 0 else None

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens."""
        drafted = sum(self.drafted)
        return sum(self.accepted) / drafted if drafted else None

    def plus(self, one: Finished) -> ModelStats:
        """With a request more."""
        return sum_of(
            (
                self,
                ModelStats(
                    requests={one.outcome: 1},
                    seconds=one.seconds,
                    cached_tokens=one.cached_tokens,
                    prompt_tokens=one.prompt_tokens,
                    prompt_ms=one.prompt_ms,
                    tokens=one.tokens,
                    decode_ms=one.decode_ms,
                    drafted=one.drafted,
                    accepted=one.accepted,
                    last_tok_s=one.tok_s,
                ),
            )
        )


def sum_of(parts: Sequence[ModelStats]) -> ModelStats:
    """Several as one; the last speed is that of the last that has one."""
    whole = ModelStats()
    for one in parts:
        outcomes = {**whole.requests, **one.requests}
        both = {k: whole.requests.get(k, 0) + one.requests.get(k, 0) for k in outcomes}
        whole = ModelStats(
            requests=both,
            seconds=whole.seconds + one.seconds,
            cached_tokens=whole.cached_tokens + one.cached_tokens,
            prompt_tokens=whole.prompt_tokens + one.prompt_tokens,
            prompt_ms=whole.prompt_ms + one.prompt_ms,
            tokens=whole.tokens + one.tokens,
            decode_ms=whole.decode_ms + one.decode_ms,
            drafted=_added(whole.drafted, one.drafted),
            accepted=_added(whole.accepted, one.accepted),
            last_tok_s=whole.last_tok_s if one.last_tok_s is None else one.last_tok_s,
        )
    return whole


def _added(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    most = max(len(a), len(b))
    return tuple(sum(s[i] for s in (a, b) if i < len(s)) for i in range(most))


class Stats:
    """Collects; used in the event loop only.

    Attributes:
        since: when counting began.
        pulse: tokens that are streaming now.
    """

    def __init__(self) -> None:
        self.since = _now()
        self.pulse = Pulse()
        self._models: dict[str, ModelStats] = {}
        self._recent: deque[Finished] = deque(maxlen=_KEPT_REQUESTS)
        self._troubles: deque[Trouble] = deque(maxlen=_KEPT_ERRORS)

    def finished(self, one: Finished) -> None:
        """A request has ended, however it did."""
        self._models[one.model] = self._models.get(one.model, ModelStats()).plus(one)
        self._recent.append(one)

    def trouble(self, text: str, model: str | None = None) -> None:
        """Something went wrong that the user should see."""
        self._troubles.append(Trouble(_now(), model, text))

    def models(self) -> Mapping[str, ModelStats]:
        """Sums by model."""
        return dict(self._models)

    def recent(self) -> Sequence[Finished]:
        """The last requests, newest first."""
        return tuple(reversed(self._recent))

    def troubles(self) -> Sequence[Trouble]:
        """The last errors, newest first."""
        return tuple(reversed(self._troubles))

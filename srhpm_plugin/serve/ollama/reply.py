"""Answers: one JSON object, or one per line as they come; and what they came to, for the figures.

A client that hangs up ends all of it, also while a model loads or reads its prompt.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..gone import until_gone
from ..stats import Outcome, Stats, finished
from .errors import ApiError, as_api_error

Record = dict[str, Any]
_NS = 1_000_000_000


@dataclass
class Account:
    """What one request takes; filled in while it is worked on.

    Attributes:
        stats: is told in the end.
        model: as the client named it.
        route: e.g. ``/api/chat``.
        load_seconds: until an engine was there, the wait for a slot included.
        timings: llama-server's, once the answer is complete.
    """

    stats: Stats
    model: str
    route: str
    load_seconds: float = 0.0
    timings: Mapping[str, Any] | None = None
    _began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Since the request came."""
        return time.monotonic() - self._began

    def leased(self) -> None:
        """An engine is there."""
        self.load_seconds = self.seconds

    def metrics(self, timings: Mapping[str, Any]) -> Record:
        """The fields that clients print, durations in nanoseconds; zeros are left out, as Ollama
        does."""
        self.timings = timings
        counts = {
            "total_duration": self.seconds * _NS,
            "load_duration": self.load_seconds * _NS,
            "prompt_eval_count": timings.get("cache_n", 0) + timings.get("prompt_n", 0),
            "prompt_eval_duration": timings.get("prompt_ms", 0) * 1e6,
            "eval_count": timings.get("predicted_n", 0),
            "eval_duration": timings.get("predicted_ms", 0) * 1e6,
        }
        return {name: int(value) for name, value in counts.items() if int(value)}

    def close(self, outcome: Outcome) -> None:
        """It is over."""
        self.stats.finished(
            finished(
                self.model,
                self.route,
                self.timings,
                outcome=outcome,
                seconds=self.seconds,
                load_seconds=self.load_seconds,
            )
        )


class Reply(Response):
    """The answer to a request that has been checked.

    Args:
        records: does the work; what it raises before the first record has a status, after that it
            is a line, as Ollama does.
        account: is closed at the end.
        fold: joins two records, for clients that want one; ``None``: each is a line.
        count: it goes into the figures of its model.
    """

    def __init__(
        self,
        records: AsyncGenerator[Record, None],
        account: Account,
        fold: Callable[[Record, Record], Record] | None,
        *,
        count: bool = True,
    ) -> None:
        super().__init__()
        self._records = records
        self._account = account
        self._fold = fold
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, self._give(scope, receive, send))

    async def _give(self, scope: Scope, receive: Receive, send: Send) -> None:
        outcome: Outcome | None = "done"
        lines = _Lines(send)
        whole: Record | None = None
        try:
            async with aclosing(self._records) as records:
                async for record in records:
                    self._account.stats.pulse.beat(self._account.model)
                    if self._fold is None:
                        await lines.send(record)
                    else:
                        whole = record if whole is None else self._fold(whole, record)
            if self._fold is None:
                await lines.end()
            else:
                await JSONResponse(whole or {})(scope, receive, send)
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except Exception as error:
            problem = as_api_error(error)
            outcome = self._note(problem)
            if lines.begun:
                await lines.send({"error": problem.text})
                await lines.end()
            else:
                await problem.response()(scope, receive, send)
        finally:
            if outcome is not None and self._count:
                self._account.close(outcome)

    def _note(self, problem: ApiError) -> Outcome | None:
        """What it counts as; ``None``: the request itself was wrong."""
        if problem.retry_after is not None:
            return "refused"
        if problem.status < 500:
            return None
        self._account.stats.trouble(problem.text, self._account.model)
        return "failed"


class _Lines:
    """Newline-delimited JSON; the head goes out with the first line."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def send(self, record: Record) -> None:
        if not self.begun:
            self.begun = True
            headers = [(b"content-type", b"application/x-ndjson")]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        body = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        data = body.encode("utf-8", "replace") + b"\n"
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})


def now() -> str:
    """The time as Ollama writes it."""
    return timestamp(datetime.now(timezone.utc))


def timestamp(when: datetime) -> str:
    """RFC 3339, in UTC."""
    return when.astimezone(timezone.utc).isoformat(timespec="microseconds").replace("+00:00", "Z")

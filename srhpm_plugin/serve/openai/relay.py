"""One request: an engine is leased, the request handed to it, its answer handed back as it comes.

A client that hangs up ends all of it, also while it waits for a load: the engine sees its
connection close and its slot is free.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...launch.server import Progress
from ..gone import until_gone
from ..interfaces import BusyError, Engine, LoadError, Need, Scheduler, ServedModel
from ..stats import Outcome, Stats
from ..wire import Answer, ServerGoneError
from . import forms, spoken
from .forms import Form, Problem
from .heard import Heard

_log = logging.getLogger(__name__)

# Seconds after which a stream begins although the model is still loading, and between signs of
# life: less than the idle limit of any proxy known to us. Before, an error can still have a status.
_PATIENCE = 10.0

_EVENT = b"data: {"  # one for each token, and a few more


@dataclass(frozen=True)
class Job:
    """What is asked of an engine.

    Attributes:
        path: of the engine's API.
        body: for it.
        model: that shall answer.
        need: how it must be loaded.
        name: what the client calls the model; answers call it so.
        stream: the answer is a stream of events.
        form: of errors.
    """

    path: str
    body: bytes
    model: ServedModel
    need: Need
    name: str
    stream: bool
    form: Form


class Relay(Response):
    """The answer to a request that has been checked.

    Args:
        scheduler: lends the engine.
        job: what for.
        stats: is told how it went.
    """

    def __init__(self, scheduler: Scheduler, job: Job, stats: Stats) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._job = job
        self._stats = stats

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await until_gone(receive, _Answer(self._scheduler, self._job, self._stats, send).give())


class _Answer:
    def __init__(self, scheduler: Scheduler, job: Job, stats: Stats, send: Send) -> None:
        self._scheduler = scheduler
        self._job = job
        self._stats = stats
        self._send = send
        self._begun = False
        self._progress: Progress | None = None
        self._load_seconds = 0.0
        self._heard = Heard()

    async def give(self) -> None:
        """All of it. The engine is given back and the figures are noted before the client knows
        that it has everything: what it does next sees both."""
        arrived = time.monotonic()
        outcome: Outcome | None = "done"
        problem = None
        whole = None
        try:
            async with contextlib.AsyncExitStack() as stack:
                engine = await self._lease(stack)
                self._load_seconds = engine.load_seconds
                whole = await self._hand_through(engine)
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except Exception as trouble:
            problem = _problem(trouble)
            outcome = self._note_problem(problem)
        finally:
            if outcome is not None:
                seconds = time.monotonic() - arrived
                self._stats.finished(
                    self._heard.finished(
                        self._job.model.name, self._job.path, outcome, seconds, self._load_seconds
                    )
                )
        if problem is not None:
            await self._say(problem)
        elif whole is not None:
            await self._say_whole(200, whole)
        else:
            await self._end()

    def _note_problem(self, problem: Problem) -> Outcome | None:
        """What it counts as; ``None``: nothing, the request itself was wrong."""
        if problem.code == "busy":
            return "refused"
        if problem.status < 500:
            return None
        if problem.code is None and problem.status == 500:
            _log.error("%s failed", self._job.path, exc_info=True)
        self._stats.trouble(problem.message, self._job.model.name)
        return "failed"

    async def _lease(self, stack: contextlib.AsyncExitStack) -> Engine:
        job = self._job
        lease = self._scheduler.lease(job.model, job.need, on_progress=self._note)
        if not job.stream:
            return await stack.enter_async_context(lease)
        alive: asyncio.Task[None] | None = None

        def begin() -> None:
            nonlocal alive
            alive = asyncio.ensure_future(self._keep_alive())

        # A task is made for those only who wait: most do not.
        later = asyncio.get_running_loop().call_later(_PATIENCE, begin)
        try:
            return await stack.enter_async_context(lease)
        finally:
            later.cancel()
            if alive is not None:
                alive.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await alive

    def _note(self, progress: Progress) -> None:
        self._progress = progress

    async def _keep_alive(self) -> None:
        await self._begin(200, "text/event-stream")
        while True:
            await self._piece(self._job.form.alive(_words(self._progress)))
            await asyncio.sleep(_PATIENCE)

    async def _hand_through(self, engine: Engine) -> bytes | None:
        """A whole answer; ``None`` where a stream has passed."""
        job = self._job
        self._heard.asked()
        async with engine.http.asking(job.path, job.body) as answer:
            if answer.status != 200:
                raise forms.from_engine(answer.status, await answer.read())
            if answer.kind != "text/event-stream":
                body = await answer.read()
                self._heard.piece(body)
                return spoken.renamed_whole(body, job.name)
            await self._stream(answer)
            return None

    async def _stream(self, answer: Answer) -> None:
        if not self._begun:
            await self._begin(200, "text/event-stream")
        rest = b""
        while part := await answer.part():
            lines, newline, rest = (rest + part).rpartition(b"\n")
            if newline:
                self._heard.piece(lines)
                self._stats.pulse.beat(self._job.model.name, lines.count(_EVENT))
                await self._piece(spoken.renamed(lines, self._job.name) + newline)
        if rest:
            await self._piece(rest)

    async def _say(self, problem: Problem) -> None:
        """The error, in whichever form is still possible."""
        if self._begun:
            await self._piece(self._job.form.event(problem))
            await self._end()
        else:
            await self._say_whole(problem.status, self._job.form.whole(problem), problem.headers)

    async def _say_whole(
        self, status: int, body: bytes, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        await self._begin(status, "application/json", len(body), headers)
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(
        self,
        status: int,
        kind: str,
        length: int | None = None,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._begun = True
        headers = {"content-type": kind, **more}
        if length is None:
            headers["cache-control"] = "no-cache"
        else:
            headers["content-length"] = str(length)
        raw = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})

    async def _piece(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def _end(self) -> None:
        await self._send({"type": "http.response.body", "body": b""})


def _problem(trouble: Exception) -> Problem:
    if isinstance(trouble, Problem):
        return trouble
    if isinstance(trouble, BusyError):
        after = {"Retry-After": str(trouble.retry_after)}
        return Problem(503, str(trouble), "busy", headers=after)
    if isinstance(trouble, LoadError):
        return Problem(503, str(trouble), "model_not_loaded")
    if isinstance(trouble, ServerGoneError):
        what = "the model's server ended before its answer did: ask again, it is started anew"
        return Problem(502, what, "server_ended")
    return Problem(500, "the answer failed: the log of `srhpm-plugin serve` says why")


def _words(progress: Progress | None) -> str:
    if progress is None:
        return "waiting for a free slot"
    done = "" if progress.fraction is None else f" {progress.fraction:.0%}"
    return f"loading the {progress.stage}{done}"

"""Who gets which server when.

Requests wait in one queue. :meth:`Scheduler._dispatch` walks it, oldest first, whenever something
has changed, and gives each what it can: a slot, a load, or the end of an idle model that makes
room. What an older request waits for, a younger one does not get: a busy model is lent to nobody
else once somebody waits for it to leave.

Everything here runs in the event loop's thread; only plans are made elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from ..errors import UserError
from ..launch import Progress
from ..plan import LaunchPlan
from . import interfaces, planning
from .engine import Process
from .interfaces import BusyError, Loaded, LoadError, Need, ServedModel
from .resident import Engine, Key, Lent, key_of
from .settings import Settings
from .stats import Stats
from .waiter import Waiter

_FIRST_GUESS_S = 10.0  # how long a request takes before any has been seen
_LONGEST_WAIT_S = 120
_STOPPING = "the server is stopping; start it again: srhpm-plugin serve"
_DEATHS = 2  # of a server that has answered nothing in between, after which it is given up


class Scheduler:
    """See :class:`.interfaces.Scheduler`.

    Args:
        settings: limits and defaults.
        stats: is told of servers that died.
    """

    def __init__(self, settings: Settings, stats: Stats) -> None:
        self._settings = settings
        self._stats = stats
        self._queue: list[Waiter] = []
        self._engines: dict[Key, Engine] = {}
        self._deaths: dict[Key, int] = {}  # in a row, without an answer in between
        self._restarts: dict[Key, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._planning = False
        self._crowd: tuple[Waiter, Engine] | None = None  # who waits for whom to leave
        self._closed = False
        self._mean_s = _FIRST_GUESS_S

    # -- what others call ----------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def lease(
        self,
        model: ServedModel,
        need: Need,
        *,
        keep_alive: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> AsyncIterator[interfaces.Engine]:
        """See :meth:`.interfaces.Scheduler.lease`."""
        if self._closed:
            raise LoadError(_STOPPING)
        if model.unfit is not None:
            raise LoadError(f"{model.name} cannot be run: {model.unfit}")
        if len(self._queue) >= self._settings.max_queue:
            raise BusyError(self._retry_after())
        if keep_alive is None:
            keep_alive = self._settings.keep_alive
        waiter = Waiter(model, need, keep_alive, on_progress)
        engine = await self._wait(waiter)
        began = time.monotonic()
        waited = began - waiter.since if waiter.loaded_for else 0.0
        try:
            yield Lent(model, engine.plan, waited, _process(engine).http)
            self._deaths.pop(engine.key, None)
        finally:
            self._mean_s += 0.2 * (time.monotonic() - began - self._mean_s)
            self._give_back(engine, keep_alive)

    def loaded(self) -> Sequence[Loaded]:
        """See :meth:`.interfaces.Scheduler.loaded`."""
        found = (e.loaded() for e in self._engines.values())
        return tuple(one for one in found if one is not None)

    async def unload(self, model: ServedModel) -> bool:
        """See :meth:`.interfaces.Scheduler.unload`."""
        found = False
        for embedding in (False, True):
            engine = self._engines.get(key_of(model, Need(embedding=embedding)))
            if engine is None or engine.state == "leaving":
                continue
            found = True
            engine.leaves = time.monotonic()
            if engine.idle:
                await asyncio.shield(self._end(engine))
        return found

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the application runs; on leaving, every server is ended."""
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends every server and refuses whoever waits."""
        self._closed = True
        for waiter in self._queue:
            waiter.refuse(_STOPPING)
        for engine in list(self._engines.values()):
            self._end(engine)
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    # -- the queue -----------------------------------------------------------------------------

    async def _wait(self, waiter: Waiter) -> Engine:
        self._queue.append(waiter)
        self._dispatch()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            engine = waiter.result()
            if engine is not None:  # granted at the same moment
                self._give_back(engine, waiter.keep_alive)
            raise
        finally:
            for engine in self._engines.values():
                engine.deaf_to(waiter.listener)
            if waiter in self._queue:
                self._queue.remove(waiter)
                self._dispatch()  # whom it held up may go on

    def _retry_after(self) -> int:
        """Seconds after which half the queue should be gone."""
        slots = max(sum(e.slots for e in self._engines.values()), self._settings.parallel)
        seconds = len(self._queue) / 2 / slots * self._mean_s
        return min(max(math.ceil(seconds), 1), _LONGEST_WAIT_S)

    def _dispatch(self) -> None:
        """Gives every waiter what can be given now."""
        if self._closed:
            return
        closed: set[Key] = set()  # older ones wait for these to leave
        may_load = True
        for waiter in list(self._queue):
            engine = self._engines.get(waiter.key)
            if waiter.granted.done() or waiter.key in closed:
                continue
            if engine is None:
                if may_load:
                    closed |= self._make_room(waiter)
                may_load = False  # one at a time, oldest first
            elif engine.state == "loading":
                waiter.loaded_for = True
                engine.hear(waiter.listener)
            elif engine.state == "ready" and not self._serves(engine, waiter):
                closed.add(engine.key)
                waiter.loaded_for = True
                if engine.idle:
                    self._end(engine)
            elif engine.state == "ready" and engine.active < engine.slots:
                self._grant(engine, waiter)

    def _serves(self, engine: Engine, waiter: Waiter) -> bool:
        ctx = planning.wanted_ctx(waiter.model, waiter.need, self._settings)
        return engine.serves(waiter.need, ctx)

    def _grant(self, engine: Engine, waiter: Waiter) -> None:
        engine.lend(waiter.since)
        self._queue.remove(waiter)
        waiter.granted.set_result(engine)

    def _give_back(self, engine: Engine, keep_alive: float) -> None:
        engine.take_back(keep_alive)
        self._dispatch()
        if engine.state == "dead" and engine.active == 0:
            self._spawn(_process(engine).stop())
        elif engine.idle:
            self._rest(engine)

    def _rest(self, engine: Engine) -> None:
        """Nobody uses it now: it ends at once, later or never."""
        if engine.leaves is not None or engine.keep_alive == 0:
            self._end(engine)
        elif engine.keep_alive > 0:
            loop = asyncio.get_running_loop()
            engine.timer = loop.call_later(engine.keep_alive, self._expire, engine)

    def _expire(self, engine: Engine) -> None:
        if engine.idle:
            self._end(engine)

    # -- coming --------------------------------------------------------------------------------

    def _make_room(self, waiter: Waiter) -> set[Key]:
        """Takes the next step towards loading what ``waiter`` wants. Returns the models that are
        to leave for it."""
        waiter.loaded_for = True
        if self._planning or any(e.state != "ready" for e in self._engines.values()):
            return set()  # what memory there is, is known when that is done
        if self._crowd is not None:
            whose, victim = self._crowd
            if whose is waiter and self._engines.get(victim.key) is victim:
                if victim.idle:
                    self._end(victim)
                return {victim.key}
            self._crowd = None
        others = list(self._engines.values())
        most = self._settings.max_loaded
        if most and len(others) >= most:
            return self._crowd_out(waiter, others)
        self._planning = True
        self._spawn(self._load(waiter, others))
        return set()

    def _crowd_out(self, waiter: Waiter, engines: Sequence[Engine]) -> set[Key]:
        """Ends the idle one used least recently; with none idle, that one is waited for."""
        victim = min([e for e in engines if e.idle] or engines, key=lambda e: e.used)
        self._crowd = (waiter, victim)
        if victim.idle:
            self._end(victim)
        return {victim.key}

    async def _load(self, waiter: Waiter, others: Sequence[Engine]) -> None:
        """Plans; then loads, or has somebody leave first."""
        model, need = waiter.model, waiter.need
        try:
            plan = await asyncio.to_thread(self._plan_beside, model, need, others)
        except UserError as error:
            self._refuse(waiter, error.line())
            return
        except Exception as error:  # a fault of ours must not leave anybody waiting for ever
            self._refuse(waiter, f"{model.name} cannot be planned: {type(error).__name__}: {error}")
            return
        finally:
            self._planning = False
        left = [e for e in others if self._engines.get(e.key) is e and e.state == "ready"]
        if plan is None and left and waiter in self._queue:
            self._crowd_out(waiter, left)
        elif plan is not None and not self._closed and waiter.key not in self._engines:
            await self._start(Engine(waiter.key, model, need, plan, waiter.keep_alive))
        self._dispatch()

    def _plan_beside(
        self, model: ServedModel, need: Need, others: Sequence[Engine]
    ) -> LaunchPlan | None:
        machine = planning.machine_now(self._settings)
        loaded = [e.memory() for e in others]
        return planning.plan_beside(model, need, self._settings, machine, loaded)

    async def _start(self, engine: Engine) -> None:
        engine.restarts = self._restarts.get(engine.key, 0)
        self._engines[engine.key] = engine
        try:
            engine.process = Process(
                planning.command_of(engine.plan, engine.model, engine.need),
                ready_path=planning.ready_path(engine.plan),
                start_timeout=self._settings.load_timeout,
                on_progress=engine.told,
                on_end=lambda why: self._died(engine, why),
            )
            self._dispatch()  # who waits for it hears of its progress from now on
            await engine.process.start()
        except UserError as error:
            if engine.state == "loading":  # nobody has stopped it
                self._gone(engine)
                self._stats.trouble(error.line(), engine.model.name)
                for waiter in list(self._queue):
                    if waiter.key == engine.key and self._serves(engine, waiter):
                        waiter.refuse(error.line())
            return
        if engine.state == "loading":
            engine.ready()
            self._dispatch()
            if engine.idle:
                self._rest(engine)

    def _refuse(self, waiter: Waiter, why: str) -> None:
        """Nobody who wants the same gets it."""
        self._planning = False
        self._stats.trouble(why, waiter.model.name)
        for one in list(self._queue):
            if (one.key, one.need, one.model.ctx) == (waiter.key, waiter.need, waiter.model.ctx):
                one.refuse(why)
        self._dispatch()

    # -- going ---------------------------------------------------------------------------------

    def _end(self, engine: Engine) -> asyncio.Task[None]:
        """Begins to end a server that nobody uses, or every one at the very end."""
        engine.leave()
        return self._spawn(self._ending(engine))

    async def _ending(self, engine: Engine) -> None:
        if engine.process is not None:
            await engine.process.stop()
        self._restarts.pop(engine.key, None)
        self._gone(engine)
        self._dispatch()

    def _gone(self, engine: Engine) -> None:
        if self._engines.get(engine.key) is engine:
            del self._engines[engine.key]

    def _died(self, engine: Engine, why: str) -> None:
        """A server has ended by itself: it is started again, once."""
        if engine.state != "ready":
            return
        self._gone(engine)
        engine.die()
        deaths = self._deaths[engine.key] = self._deaths.get(engine.key, 0) + 1
        again = deaths < _DEATHS and not self._closed
        text = f"{why}; " + ("it is started again" if again else "it is not started once more")
        self._stats.trouble(text, engine.model.name)
        if engine.active == 0:
            self._spawn(_process(engine).stop())
        if again:
            self._restarts[engine.key] = self._restarts.get(engine.key, 0) + 1
            self._spawn(self._again(engine))
        else:
            del self._deaths[engine.key]
            for waiter in list(self._queue):
                if waiter.key == engine.key:
                    waiter.refuse(why)
        self._dispatch()

    async def _again(self, engine: Engine) -> None:
        """Loads what has died, as if somebody asked for it."""
        with contextlib.suppress(LoadError):
            loaded = await self._wait(Waiter(engine.model, engine.need, engine.keep_alive, None))
            self._give_back(loaded, engine.keep_alive)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _process(engine: Engine) -> Process:
    assert engine.process is not None  # it is ready
    return engine.process

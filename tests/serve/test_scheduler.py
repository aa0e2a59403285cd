"""Who gets which server when. The servers are real processes, scripted; plans are made up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from serve_parts import plan_of, served

from srhpm_plugin.backend import Command
from srhpm_plugin.errors import UserError
from srhpm_plugin.launch import Progress
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.plan import LaunchPlan
from srhpm_plugin.serve import planning
from srhpm_plugin.serve.budget import Resident
from srhpm_plugin.serve.interfaces import BusyError, LoadError, Need, ServedModel
from srhpm_plugin.serve.scheduler import Scheduler
from srhpm_plugin.serve.settings import Settings
from srhpm_plugin.serve.stats import Stats
from srhpm_plugin.serve.wire import ServerGoneError, Wire

NEED = Need()


@dataclass
class World:
    """What the planner would say, and what was started.

    Attributes:
        room: models that fit at once.
        options: of the scripted server, by model's name.
        starts: names, in order.
        faults: refusals of the planner, by name.
    """

    folder: Path
    fake: tuple[str, str]
    settings: Settings = field(default_factory=lambda: Settings(keep_alive=60))
    room: int = 10
    options: dict[str, tuple[str, ...]] = field(default_factory=dict)
    starts: list[str] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)
    stats: Stats = field(default_factory=Stats)

    def model(self, name: str = "a", **more: Any) -> ServedModel:
        path = self.folder / f"{name.partition(':')[0]}.gguf"
        path.write_bytes(b"GGUF")
        return served(name, path, **more)

    def plan(
        self,
        model: ServedModel,
        need: Need,
        settings: Settings,
        machine: object,
        loaded: Sequence[Resident],
    ) -> LaunchPlan | None:
        if model.name in self.faults:
            raise self.faults[model.name]
        if len(loaded) >= self.room:
            return None
        ctx = planning.wanted_ctx(model, need, settings) or 4096
        return replace(plan_of(model.path), ctx=ctx, parallel=settings.parallel)

    def command(self, plan: LaunchPlan, model: ServedModel, need: Need) -> Command:
        self.starts.append(model.name)
        return Command((*self.fake, "-m", str(model.path), *self.options.get(model.name, ())), {})

    @contextlib.asynccontextmanager
    async def scheduler(self, **settings: Any) -> AsyncIterator[Scheduler]:
        self.settings = replace(self.settings, **settings)
        scheduler = Scheduler(self.settings, self.stats)
        async with scheduler.running():
            yield scheduler
        assert not children(), "servers are left"


_others: set[int] = set()  # children of this process that other tests keep


def children() -> list[int]:
    """Servers of the scheduler that run."""
    alive = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            if child.pid not in _others and child.status() != psutil.STATUS_ZOMBIE:
                alive.append(child.pid)
    return alive


@pytest.fixture
def world(tmp_path: Path, fake_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, fake_server)
    _others.clear()
    _others.update(child.pid for child in psutil.Process().children())
    monkeypatch.setattr(planning, "plan_beside", world.plan)
    monkeypatch.setattr(planning, "command_of", world.command)
    monkeypatch.setattr(planning, "machine_now", lambda settings: probe())
    return world


def loop(test: Callable[[World], Awaitable[None]]) -> Callable[[World], None]:
    """Runs a coroutine as a test."""

    def run(world: World) -> None:
        asyncio.run(asyncio.wait_for(test(world), 60))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def hold(scheduler: Scheduler, model: ServedModel, need: Need = NEED, **more: Any) -> Held:
    """A lease until it is let go."""
    held = Held()
    held.task = asyncio.create_task(held.run(scheduler, model, need, more))
    await asyncio.sleep(0)
    return held


class Held:
    """A request that has, or waits for, a server."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.has = asyncio.Event()
        self.done = asyncio.Event()
        self.pid = 0
        self.load_seconds = 0.0
        self.http: Wire | None = None

    async def run(
        self, scheduler: Scheduler, model: ServedModel, need: Need, more: dict[str, Any]
    ) -> None:
        async with scheduler.lease(model, need, **more) as engine:
            self.http = engine.http
            self.load_seconds = engine.load_seconds
            loaded = scheduler.loaded()
            self.pid = next(one.pid for one in loaded if one.plan is engine.plan)
            self.has.set()
            await self.done.wait()

    async def got(self) -> Held:
        """Waits for the server, or raises what came instead."""
        has = asyncio.create_task(self.has.wait())
        await asyncio.wait({has, self.task}, return_when=asyncio.FIRST_COMPLETED)
        has.cancel()
        if self.task.done():
            self.task.result()
        return self

    async def let_go(self) -> None:
        self.done.set()
        await self.task


async def until(condition: Callable[[], object]) -> None:
    for _ in range(400):
        if condition():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("it never came to that")


@loop
async def test_two_requests_share_a_server(world: World) -> None:
    async with world.scheduler(parallel=2) as scheduler:
        a, b = await hold(scheduler, world.model()), await hold(scheduler, world.model())
        await asyncio.gather(a.got(), b.got())
        assert a.pid == b.pid and world.starts == ["a"]
        assert a.load_seconds > 0 and b.load_seconds > 0
        (loaded,) = scheduler.loaded()
        assert (loaded.active, loaded.busy_limit, loaded.model.name) == (2, 2, "a")
        third = await hold(scheduler, world.model())
        await asyncio.sleep(0.1)
        assert not third.has.is_set()
        await a.let_go()
        await third.got()
        assert third.load_seconds == 0
        await asyncio.gather(b.let_go(), third.let_go())
        assert scheduler.loaded()[0].active == 0


@loop
async def test_slots_go_to_the_oldest(world: World) -> None:
    async with world.scheduler() as scheduler:
        first = await (await hold(scheduler, world.model())).got()
        waiting = [await hold(scheduler, world.model()) for _ in range(5)]
        order = []
        await first.let_go()
        for _ in waiting:
            await until(lambda: any(w.has.is_set() and not w.done.is_set() for w in waiting))
            (now,) = [w for w in waiting if w.has.is_set() and not w.done.is_set()]
            order.append(waiting.index(now))
            await now.let_go()
        assert order == [0, 1, 2, 3, 4]


@loop
async def test_a_full_queue_refuses(world: World) -> None:
    async with world.scheduler(max_queue=2) as scheduler:
        first = await (await hold(scheduler, world.model())).got()
        waiting = [await hold(scheduler, world.model()) for _ in range(2)]
        with pytest.raises(BusyError) as refused:
            async with scheduler.lease(world.model(), NEED):
                pass
        assert refused.value.retry_after >= 1
        waiting[0].task.cancel()  # a client hangs up: its place is free
        await until(waiting[0].task.done)
        another = await hold(scheduler, world.model())
        await first.let_go()
        await waiting[1].got()
        await waiting[1].let_go()
        await another.got()
        await another.let_go()


@loop
async def test_keep_alive(world: World) -> None:
    async with world.scheduler() as scheduler:
        model = world.model()
        async with scheduler.lease(model, NEED, keep_alive=0.5):
            assert scheduler.loaded()[0].expires is not None
        await until(lambda: not scheduler.loaded())
        async with scheduler.lease(model, NEED, keep_alive=0):
            pass
        await until(lambda: not children())
        async with scheduler.lease(model, NEED, keep_alive=-1):
            pass
        assert scheduler.loaded()[0].expires is None
        assert world.starts == ["a"] * 3
        assert await scheduler.unload(model)
        assert not scheduler.loaded() and not children()
        assert not await scheduler.unload(model)


@loop
async def test_unloading_waits_for_who_uses_it(world: World) -> None:
    async with world.scheduler() as scheduler:
        held = await (await hold(scheduler, world.model())).got()
        assert await scheduler.unload(world.model())
        assert scheduler.loaded()[0].active == 1
        await held.let_go()
        await until(lambda: not children())


@loop
async def test_unloading_what_is_still_loading_waits_for_who_waited_for_it(world: World) -> None:
    world.options["a"] = ("--load-seconds", "0.6")
    async with world.scheduler() as scheduler:
        waiting = await hold(scheduler, world.model())
        await until(children)
        assert await scheduler.unload(world.model())
        await waiting.got()
        await waiting.let_go()
        await until(lambda: not children())
        async with scheduler.lease(world.model(), NEED):  # who comes later finds it staying
            pass
        assert scheduler.loaded()


@loop
async def test_the_least_recently_used_makes_room(world: World) -> None:
    world.room = 2
    async with world.scheduler() as scheduler:
        for name in ("a", "b", "a", "c"):
            async with scheduler.lease(world.model(name), NEED):
                pass
        assert {one.model.name for one in scheduler.loaded()} == {"a", "c"}
        assert len(children()) == 2
        assert world.starts == ["a", "b", "c"]


@loop
async def test_no_more_models_than_allowed(world: World) -> None:
    async with world.scheduler(max_loaded=1) as scheduler:
        for name in ("a", "b"):
            async with scheduler.lease(world.model(name), NEED):
                pass
        assert [one.model.name for one in scheduler.loaded()] == ["b"]


@loop
async def test_a_busy_model_is_waited_for_and_nobody_younger_gets_it(world: World) -> None:
    world.room = 1
    async with world.scheduler(parallel=2) as scheduler:
        a = await (await hold(scheduler, world.model("a"))).got()
        b = await hold(scheduler, world.model("b"))
        await until(lambda: scheduler._crowd)
        younger = await hold(scheduler, world.model("a"))
        await asyncio.sleep(0.1)
        assert not b.has.is_set() and not younger.has.is_set()
        await a.let_go()
        await b.got()
        await b.let_go()
        await younger.got()
        await younger.let_go()
        assert world.starts == ["a", "b", "a"]


@loop
async def test_who_hangs_up_holds_nobody_up(world: World) -> None:
    world.room = 1
    async with world.scheduler(parallel=2) as scheduler:
        a = await (await hold(scheduler, world.model("a"))).got()
        b = await hold(scheduler, world.model("b"))
        await until(lambda: scheduler._crowd)
        younger = await hold(scheduler, world.model("a"))
        b.task.cancel()
        await younger.got()
        await asyncio.gather(a.let_go(), younger.let_go())
        assert world.starts == ["a"]


@loop
async def test_another_context_starts_it_anew(world: World) -> None:
    async with world.scheduler(ctx=2048) as scheduler:
        model = world.model()
        async with scheduler.lease(model, NEED) as engine:
            assert engine.plan.ctx == 2048
        async with scheduler.lease(model, Need(ctx=8192)) as engine:
            assert engine.plan.ctx == 8192
        async with scheduler.lease(model, NEED) as engine:
            assert engine.plan.ctx == 8192  # long enough for one that says nothing
        async with scheduler.lease(model, Need(ctx=512)) as engine:
            assert engine.plan.ctx == 512
        async with scheduler.lease(model, NEED) as engine:
            assert engine.plan.ctx == 2048  # too short for one that says nothing
        assert len(world.starts) == 4 and len(children()) == 1


@loop
async def test_embeddings_have_a_server_of_their_own(world: World) -> None:
    async with world.scheduler() as scheduler:
        async with (
            scheduler.lease(world.model(), NEED),
            scheduler.lease(world.model(), Need(embedding=True)),
        ):
            assert len(scheduler.loaded()) == 2
        assert await scheduler.unload(world.model())
        assert not scheduler.loaded()


@loop
async def test_two_names_of_the_same_file_share_a_server(world: World) -> None:
    async with world.scheduler() as scheduler:
        for name in ("a:latest", "a:pirate"):
            async with scheduler.lease(world.model(name), NEED) as engine:
                assert engine.model.name == name
        assert world.starts == ["a:latest"]


@loop
async def test_progress_reaches_all_who_wait(world: World) -> None:
    world.options["a"] = ("--load-seconds", "1.2")
    heard: list[list[Progress]] = [[], []]
    async with world.scheduler(parallel=2) as scheduler:
        both = [await hold(scheduler, world.model(), on_progress=one.append) for one in heard]
        for one in both:
            await one.got()
        await asyncio.gather(*(one.let_go() for one in both))
    assert all(len(one) > 1 and one[-1].elapsed > one[0].elapsed for one in heard)


@loop
async def test_a_load_goes_on_when_its_client_hangs_up(world: World) -> None:
    world.options["a"] = ("--load-seconds", "1")
    async with world.scheduler() as scheduler:
        first = await hold(scheduler, world.model())
        await until(children)
        first.task.cancel()
        async with scheduler.lease(world.model(), NEED):
            pass
        assert world.starts == ["a"]


@loop
async def test_a_load_that_fails_is_told_to_all(world: World) -> None:
    world.options["a"] = ("--load-seconds", "30", "--die-loading", "0")
    async with world.scheduler() as scheduler:
        both = [await hold(scheduler, world.model()) for _ in range(2)]
        for one in both:
            with pytest.raises(LoadError, match="did not start: exit code 1"):
                await one.got()
        assert world.starts == ["a"] and not scheduler.loaded()
        (trouble,) = world.stats.troubles()
        assert trouble.model == "a" and "did not start" in trouble.text
        async with scheduler.lease(world.model("b"), NEED):
            pass


@loop
async def test_what_cannot_be_planned_is_refused(world: World) -> None:
    world.faults = {"a": UserError("a does not fit", "too big", "buy RAM"), "b": KeyError("x")}
    async with world.scheduler() as scheduler:
        for name, words in (("a", "too big; buy RAM"), ("b", "KeyError")):
            with pytest.raises(LoadError, match=words):
                async with scheduler.lease(world.model(name), NEED):
                    pass
        unfit = world.model("c", unfit="it is written for MLX")
        with pytest.raises(LoadError, match="c cannot be run: it is written for MLX"):
            async with scheduler.lease(unfit, NEED):
                pass
        async with scheduler.lease(world.model("d"), NEED):
            pass
        assert world.starts == ["d"]


def kill(pid: int) -> None:
    os.kill(pid, getattr(signal, "SIGKILL", signal.SIGTERM))


@loop
async def test_a_server_that_dies_is_started_again_and_reported(world: World) -> None:
    async with world.scheduler() as scheduler:
        held = await (await hold(scheduler, world.model())).got()
        assert held.http is not None
        kill(held.pid)
        with pytest.raises(ServerGoneError, match=r"died: (killed|ended)"):
            while True:
                await held.http.ask("/health")
        # No request is needed for it.
        await until(lambda: any(one.pid != held.pid for one in scheduler.loaded()))
        assert scheduler.loaded()[0].restarts == 1
        (trouble,) = world.stats.troubles()
        assert "died" in trouble.text and "started again" in trouble.text
        await held.let_go()
        async with scheduler.lease(world.model(), NEED) as engine:
            assert (await engine.http.ask("/health"))[0] == 200
        assert world.starts == ["a", "a"] and len(children()) == 1


@loop
async def test_a_server_that_dies_twice_in_a_row_is_given_up(world: World) -> None:
    async with world.scheduler() as scheduler:
        held = await (await hold(scheduler, world.model())).got()
        waiting = await hold(scheduler, world.model(), Need(ctx=99))
        kill(held.pid)
        await waiting.got()  # on the one that was started again
        await until(scheduler.loaded)
        held.task.cancel()
        kill(waiting.pid)
        await until(lambda: len(world.stats.troubles()) == 2)
        assert "not started once more" in world.stats.troubles()[0].text
        waiting.task.cancel()
        await asyncio.sleep(0.2)
        assert not scheduler.loaded()
        async with scheduler.lease(world.model(), NEED):  # until somebody asks again
            pass


@loop
async def test_stopping_ends_loads_and_refuses_who_waits(world: World) -> None:
    world.options["a"] = ("--load-seconds", "30")
    async with world.scheduler() as scheduler:
        waiting = await hold(scheduler, world.model())
        await until(children)
    with pytest.raises(LoadError, match="stopping"):
        await waiting.task
    with pytest.raises(LoadError, match="stopping"):
        async with scheduler.lease(world.model(), NEED):
            pass
    assert not world.stats.troubles()

"""A model that is loaded, being loaded or leaving: what the scheduler keeps of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Literal

from ..launch import Progress
from ..plan import LaunchPlan
from .budget import Resident, private_bytes
from .engine import Process
from .interfaces import Loaded, Need, ServedModel
from .wire import Wire

State = Literal["loading", "ready", "leaving", "dead"]
Key = tuple[Path, Path | None, Path | None, tuple[Path, ...], bool]


def key_of(model: ServedModel, need: Need) -> Key:
    """Equal for names of the same files in the same mode: they share a server."""
    return (model.path, model.drafter, model.mmproj, model.adapters, need.embedding)


class Engine:
    """A server and who uses it.

    Args:
        key: see :func:`key_of`.
        model, need: as first asked for.
        plan: how it is loaded.
        keep_alive: seconds it stays after the last use; negative: for ever.

    Attributes:
        state: ``loading``, ``ready``, ``leaving`` or ``dead``.
        process: once there is one.
        active: requests that have a slot now.
        leaves: since when it is to end as soon as nobody uses it (``time.monotonic``).
        used: when it was last lent or given back (``time.monotonic``).
        timer: unloads it.
        restarts: how often it had to be started again after dying.
    """

    def __init__(
        self, key: Key, model: ServedModel, need: Need, plan: LaunchPlan, keep_alive: float
    ) -> None:
        self.key = key
        self.model = model
        self.need = need
        self.plan = plan
        self.keep_alive = keep_alive
        self.state: State = "loading"
        self.process: Process | None = None
        self.active = 0
        self.leaves: float | None = None
        self.used = time.monotonic()
        self.timer: asyncio.TimerHandle | None = None
        self.restarts = 0
        self._listeners: list[Callable[[Progress], None]] = []
        self._since: datetime | None = None
        self._idle_since: datetime | None = None

    @property
    def slots(self) -> int:
        """Requests it can be busy with."""
        return self.plan.parallel

    @property
    def idle(self) -> bool:
        """Whether it is ready and nobody uses it."""
        return self.state == "ready" and self.active == 0

    def serves(self, need: Need, ctx: int | None) -> bool:
        """Whether it is loaded as ``need`` says; ``ctx`` is the context wanted in the end. A
        request that names no context is content with a longer one, lest two clients make each other
        wait for loads by turns."""
        mine = self.need
        if (need.gpu_layers, need.threads) != (mine.gpu_layers, mine.threads):
            return False
        if need.ctx in (mine.ctx, self.plan.ctx):
            return True
        return need.ctx is None and ctx is not None and self.plan.ctx >= ctx

    # -- its life ------------------------------------------------------------------------------

    def ready(self) -> None:
        """It can be lent from now on."""
        self.state = "ready"
        self._since = self._idle_since = datetime.now(timezone.utc)

    def lend(self, asked: float) -> None:
        """A request gets a slot. ``asked``: when it came (``time.monotonic``); one that had waited
        before the model was unloaded does not keep it."""
        self.active += 1
        if self.leaves is not None and asked > self.leaves:
            self.leaves = None
        self.used = time.monotonic()
        self._idle_since = None
        self._stop_timer()

    def take_back(self, keep_alive: float) -> None:
        """A request gives its slot back."""
        self.active -= 1
        self.used = time.monotonic()
        self.keep_alive = keep_alive
        if self.active == 0:
            self._idle_since = datetime.now(timezone.utc)

    def leave(self) -> None:
        """It is lent no more."""
        self.state = "leaving"
        self._stop_timer()

    def die(self) -> None:
        """It has ended by itself."""
        self.state = "dead"
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # -- its load ------------------------------------------------------------------------------

    def hear(self, listener: Callable[[Progress], None] | None) -> None:
        """Tells ``listener`` of the progress, too."""
        if listener is not None and listener not in self._listeners:
            self._listeners.append(listener)

    def deaf_to(self, listener: Callable[[Progress], None] | None) -> None:
        """Tells it no more."""
        if listener is not None and listener in self._listeners:
            self._listeners.remove(listener)

    def told(self, progress: Progress) -> None:
        """Passes progress on."""
        for listener in list(self._listeners):
            listener(progress)

    # -- what it is ----------------------------------------------------------------------------

    def memory(self) -> Resident:
        """What it takes."""
        return Resident(self.plan, private_bytes(self.process.pid) if self.process else 0)

    def loaded(self) -> Loaded | None:
        """For lists; ``None`` while it is not ready."""
        if self.state != "ready" or self.process is None or self._since is None:
            return None
        expires = None
        if self.keep_alive >= 0:
            start = self._idle_since or datetime.now(timezone.utc)
            expires = start + timedelta(seconds=self.keep_alive)
        return Loaded(
            model=self.model,
            plan=self.plan,
            need=self.need,
            pid=self.process.pid,
            since=self._since,
            expires=expires,
            active=self.active,
            busy_limit=self.slots,
            restarts=self.restarts,
        )


@dataclass(frozen=True)
class Lent:
    """See :class:`.interfaces.Engine`."""

    model: ServedModel
    plan: LaunchPlan
    load_seconds: float
    http: Wire

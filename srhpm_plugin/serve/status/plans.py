"""Plans for models that are not loaded, made one after another in a thread, and the machine.

A plan takes a header to read, so no page waits for one: it shows what is known and asks for the
rest, which is there when it looks again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...errors import UserError
from ...machine.types import Machine
from ...plan import LaunchPlan
from ..interfaces import Need, ServedModel
from ..planning import machine_now, plan_for
from ..settings import Settings

_log = logging.getLogger(__name__)

# Seconds. Plans take processor time from answers and change little; free memory is cheap.
_PLAN_GOOD_FOR = 900.0
_MACHINE_GOOD_FOR = 60.0
_MOST = 500


@dataclass(frozen=True)
class Outlook:
    """What would be if a model were loaded now, alone: a plan, or why there is none."""

    plan: LaunchPlan | None
    why_not: str | None = None


class Plans:
    """Makes and keeps plans.

    Args:
        settings: of the host.
        plan: makes one; blocking.
        probe: looks at the machine; blocking.
    """

    def __init__(
        self,
        settings: Settings,
        plan: Callable[[ServedModel, Need, Settings, Machine], LaunchPlan] = plan_for,
        probe: Callable[[Settings], Machine] = machine_now,
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._probe = probe
        self._known: dict[tuple[str, str], tuple[float, Outlook]] = {}
        self._task: asyncio.Task[None] | None = None
        self.machine: Machine | None = None
        self._looked = float("-inf")

    def of(self, model: ServedModel) -> Outlook | None:
        """What is known; ``None``: nothing yet."""
        kept = self._known.get(_key(model))
        return kept[1] if kept else None

    def refresh(self, models: Iterable[ServedModel] | None) -> None:
        """Begins to find out what is missing or old, unless that is under way.

        Args:
            models: all there are; ``None``: only the machine is looked at.
        """
        if self._task is not None and not self._task.done():
            return
        now = time.monotonic()
        old = []
        if models is not None:
            wanted = [m for m in models if m.unfit is None][:_MOST]
            keys = {_key(m) for m in wanted}
            self._known = {key: kept for key, kept in self._known.items() if key in keys}
            old = [m for m in wanted if self._age(m, now) > _PLAN_GOOD_FOR]
        if old or now - self._looked > _MACHINE_GOOD_FOR:
            self._task = asyncio.create_task(self._find_out(old))

    def _age(self, model: ServedModel, now: float) -> float:
        kept = self._known.get(_key(model))
        return now - kept[0] if kept else float("inf")

    async def _find_out(self, models: list[ServedModel]) -> None:
        self._looked = time.monotonic()  # a machine that cannot be looked at is not asked at once
        try:
            machine = self.machine = await asyncio.to_thread(self._probe, self._settings)
            for model in models:
                outlook = await asyncio.to_thread(self._outlook, model, machine)
                self._known[_key(model)] = time.monotonic(), outlook
        except Exception:  # a plugin of somebody else's may raise anything
            _log.exception("the status page cannot look at the machine")

    def _outlook(self, model: ServedModel, machine: Machine) -> Outlook:
        try:
            need = Need(ctx=model.ctx)
            return Outlook(self._plan(model, need, self._settings, machine))
        except UserError as error:
            return Outlook(None, error.line())
        except OSError as error:
            return Outlook(None, str(error))


def _key(model: ServedModel) -> tuple[str, str]:
    return model.name, model.digest

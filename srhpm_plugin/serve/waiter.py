"""A request that waits for a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from ..launch import Progress
from .interfaces import LoadError, Need, ServedModel
from .resident import Engine, key_of


class Waiter:
    """A request in the queue."""

    def __init__(
        self,
        model: ServedModel,
        need: Need,
        keep_alive: float,
        listener: Callable[[Progress], None] | None,
    ) -> None:
        self.model = model
        self.need = need
        self.key = key_of(model, need)
        self.keep_alive = keep_alive
        self.listener = listener
        self.granted: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.loaded_for = False

    def refuse(self, why: str) -> None:
        """It will not be served."""
        if not self.granted.done():
            self.granted.set_exception(LoadError(why))
            self.granted.exception()  # seen, also when it has just hung up

    def result(self) -> Engine | None:
        """What it was granted."""
        granted = self.granted
        if not granted.done() or granted.cancelled() or granted.exception() is not None:
            return None
        return granted.result()

"""Ending work that nobody waits for any more."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive


async def until_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> bool:
    """Does the work, unless the client hangs up before it is done; whether it was done.

    The request's body must have been read: what ``receive`` says next is that the client is gone.
    """
    working = asyncio.current_task()
    assert working is not None
    gone = done = False

    def hung_up(watch: asyncio.Task[None]) -> None:
        nonlocal gone
        if not done and not watch.cancelled():
            gone = True
            working.cancel()

    watching = asyncio.ensure_future(_gone(receive))
    watching.add_done_callback(hung_up)
    try:
        await work
    except asyncio.CancelledError:
        if not gone:
            raise
        if sys.version_info >= (3, 11):
            working.uncancel()
    finally:
        done = True
        watching.cancel()
    return not gone


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

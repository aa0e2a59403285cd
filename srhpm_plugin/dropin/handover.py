"""The host's own server as the answer. Only the standard library where there is one: a model that
is handed over must start as fast as one that is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .answer import Answer
from .cache import Kept
from .call import Call
from .router import of_ours

BUILD = "srhpm-plugin native build"


class NotOurs(Exception):
    """The host's own server must run; the message is the reason, in words."""


def hand_over(call: Call, why: str, facts: Mapping[str, Any] | None = None) -> Kept:
    """The host's own server; where there is none, and for a model of our router, ours with
    everything of ours switched off.

    Args:
        facts: what else is known for the record.

    Raises:
        NotOurs: there is neither.
    """
    record = {"host": call.note.host, **(facts or {}), "kind": "stock", "reason": why}
    original = None if of_ours(call) else call.original
    if original is not None:
        return Kept(Answer.untouched(original, len(call.argv)), record)
    from ..backends.stock import OFF
    from ..native.locate import find_server

    server = find_server()
    if server is None:
        raise NotOurs(f"{why}, and there is no server: type {BUILD}")
    args = Answer.untouched(server, len(call.argv)).args
    env = {name: value for name, value in OFF.items() if not call.env.get(name)}
    return Kept(Answer(server.absolute(), args, dict(env)), record)

"""A call as the host's plugin understands it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..host import HandOver, HostCall, Translated
from ..plan import HostRequest
from ..planner.hosted import hosted
from ..plugins import plugins
from .call import Call
from .handover import NotOurs


def translate(call: Call, request: HostRequest) -> Translated:
    """The call in our words, with the name by which people know the model where there is one.

    Raises:
        NotOurs: the host's plugin hands it over.
    """
    hosts = plugins().hosts()
    host = hosts.get(call.note.host)
    if host is None:
        return Translated(request, call.alias or request.model.name)
    told = host.translate(
        HostCall(call.note.host, call.argv, call.env, call.note.facts, call.note.mode), request
    )
    if isinstance(told, HandOver):
        raise NotOurs(told.reason)
    if told.model != request.model.name:
        return told
    # A host that knows the model by its file only may have been given a name to serve it under.
    return replace(told, model=call.alias or _listed(call, told) or told.model)


def name_of(call: Call, model: Path) -> str:
    """The name by which people know a model of which only the file is known so far."""
    told = Translated(HostRequest(model), model.name)
    return call.alias or _listed(call, told) or model.name


def _listed(call: Call, told: Translated) -> str | None:
    """The name under which the host lists the model that it starts. Several may share a file."""
    try:
        models = [one.model for one in hosted(call.note.host)[0]]
    except Exception:  # no name is worth failing a start for
        return None
    request = told.request
    found = [m for m in models if _same_file(m.path, request.model)]
    likest = max(found, key=lambda m: (m.twin == told.picked, m.ctx == request.ctx), default=None)
    return likest.name if likest else None


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other

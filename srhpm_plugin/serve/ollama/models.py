"""Routes about models: lists, ``show``, ``ps``, ``copy`` and ``delete``."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..app import Parts
from ..interfaces import Loaded, NoSuchModelError, NotOursError, ServedModel
from ..store import OWN
from .body import read_body
from .describe import contents_of, facts_of
from .errors import ApiError, model_not_found
from .modelfile import modelfile, parameters
from .reply import Record, timestamp
from .requests import model_name

_NEVER: Final = timedelta(days=365 * 100)  # far enough for every client's arithmetic
# Ollama's rule for the names that it stores, host and namespace included
_NAME = re.compile(r"(\w[\w.:-]{0,349}/)?(\w[\w-]{0,79}/)?\w[\w.-]{0,79}(:\w[\w.-]{0,79})?", re.A)


async def tags(parts: Parts, request: Request) -> Response:
    """All models that can be run."""
    models = [m for m in await asyncio.to_thread(parts.catalog.all) if m.unfit is None]
    return JSONResponse({"models": [await _listed(m) for m in models]})


async def _listed(model: ServedModel) -> Record:
    facts = await facts_of(model)
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": timestamp(model.modified),
        "size": model.nbytes,
        "digest": model.digest,
        "details": facts.details(model, sizes=True),
        "capabilities": list(facts.capabilities),
    }


async def ps(parts: Parts, request: Request) -> Response:
    """The models that are loaded, those that stay longest first."""
    loaded = sorted(parts.scheduler.loaded(), key=_expires, reverse=True)
    return JSONResponse({"models": [await _running(one) for one in loaded]})


def _expires(one: Loaded) -> datetime:
    return one.expires or datetime.now(timezone.utc) + _NEVER


async def _running(one: Loaded) -> Record:
    facts = await facts_of(one.model)
    memory = one.plan.memory
    return {
        "name": one.model.name,
        "model": one.model.name,
        "size": sum(use.total for use in memory),
        "digest": one.model.digest,
        "details": facts.details(one.model),
        "expires_at": timestamp(_expires(one)),
        "size_vram": sum(use.total for use in memory if use.device != "CPU"),
        "context_length": one.plan.ctx,
    }


async def show(parts: Parts, request: Request) -> Response:
    """Everything about one model."""
    body = await read_body(request)
    name = model_name(body)
    system, verbose = body.text("system"), body.flag("verbose", False)
    try:
        model = await asyncio.to_thread(parts.catalog.find, name)
    except NoSuchModelError:
        raise model_not_found(name) from None
    facts, contents = await facts_of(model), await contents_of(model.path, verbose)
    said: Record = {
        "license": "\n".join(model.licenses),
        "modelfile": modelfile(model),
        "parameters": parameters(model.parameters),
        "template": model.template or facts.template,
        "system": system or model.system or "",
        "details": facts.details(model),
        "messages": [dict(m) for m in model.messages],
        "model_info": dict(contents.info),
        "tensors": [
            {"name": t.name, "type": t.type, "shape": list(t.shape)} for t in contents.tensors
        ],
        "capabilities": list(facts.capabilities),
        "modified_at": timestamp(model.modified),
    }
    if model.mmproj is not None:
        of_projector = await contents_of(model.mmproj, verbose)
        said["projector_info"] = dict(of_projector.info)
    always = ("details", "model_info")
    return JSONResponse({k: v for k, v in said.items() if v or k in always})


async def copy(parts: Parts, request: Request) -> Response:
    """A second name for a model; its files are not copied."""
    body = await read_body(request)
    source, target = body.name("source"), body.name("destination")
    if not source:
        raise ApiError(400, f"source {json.dumps(source)} is invalid")
    await check_new_name(parts, target, f"destination {json.dumps(target)} is invalid")
    try:
        model = await asyncio.to_thread(parts.catalog.find, source)
    except NoSuchModelError:
        raise ApiError(404, f"model {json.dumps(source)} not found") from None
    await asyncio.to_thread(parts.store.save, full_name(target), model)
    return Response()


async def delete(parts: Parts, request: Request) -> Response:
    """Forgets a model of ours; those of hosts are theirs to delete."""
    name = model_name(await read_body(request))
    try:
        model = await asyncio.to_thread(parts.catalog.find, name)
    except NoSuchModelError:
        raise model_not_found(name) from None
    if model.origin == OWN:  # its file cannot go on Windows while it is in use
        await parts.scheduler.unload(model)
    try:
        await asyncio.to_thread(parts.store.delete, model)
    except NotOursError as error:
        raise ApiError(403, str(error)) from None
    return Response()


async def check_new_name(parts: Parts, name: str, what: str) -> None:
    """Makes sure that a model of ours can have this name.

    Raises:
        ApiError: 400, it is no name of Ollama's form (message ``what``), or another host's model
            has it.
    """
    if not _NAME.fullmatch(name):
        raise ApiError(400, what)
    try:
        there = await asyncio.to_thread(parts.catalog.find, full_name(name))
    except NoSuchModelError:
        return
    if there.origin != OWN and there.name == full_name(name):
        raise ApiError(400, f"{there.name} belongs to {there.origin}: choose another name")


def full_name(name: str) -> str:
    """With the tag that Ollama adds."""
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"

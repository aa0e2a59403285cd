"""The routes of OpenAI's API, and of Anthropic's messages."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .. import interfaces
from ..app import Parts
from ..interfaces import NoSuchModelError, ServedModel
from . import check, defaults
from .check import Body
from .forms import Anthropic, Form, OpenAI, Problem, Responses
from .relay import Job, Relay

_OWNED = {"own": "library"}


@dataclass(frozen=True)
class _Service:
    """A path that is handed to the engine.

    Attributes:
        path: ours and the engine's.
        form: of errors.
        check: looks at the body.
        fill: what the model's store sets; each in turn.
        embedding: needs an engine for embeddings.
        streams: the answer can be a stream.
    """

    path: str
    form: Form
    check: Callable[[Body], None]
    fill: tuple[Callable[[Body, ServedModel], None], ...] = ()
    embedding: bool = False
    streams: bool = True


_OPENAI, _RESPONSES, _ANTHROPIC = OpenAI(), Responses(), Anthropic()
_SERVICES = (
    _Service(
        "/v1/chat/completions",
        _OPENAI,
        check.messages,
        (defaults.chat, defaults.openai_sampling),
    ),
    _Service("/v1/completions", _OPENAI, check.prompt, (defaults.openai_sampling,)),
    _Service("/v1/embeddings", _OPENAI, check.texts, embedding=True, streams=False),
    _Service(
        "/v1/responses",
        _RESPONSES,
        check.turns,
        (defaults.responses, defaults.openai_sampling),
    ),
    _Service(
        "/v1/messages",
        _ANTHROPIC,
        check.messages,
        (defaults.anthropic_chat, defaults.anthropic_sampling),
    ),
    _Service(
        "/v1/messages/count_tokens",
        _ANTHROPIC,
        check.messages,
        (defaults.anthropic_chat,),
        streams=False,
    ),
)


def routes(parts: Parts) -> list[Route]:
    """All of them."""
    return [
        Route("/v1/models", _models(parts), methods=["GET"]),
        Route("/v1/models/{model:path}", _model(parts), methods=["GET"]),
        *(Route(s.path, _endpoint(parts, s), methods=["POST"]) for s in _SERVICES),
    ]


def _endpoint(parts: Parts, service: _Service) -> Callable[[Request], object]:
    async def endpoint(request: Request) -> Response:
        try:
            body = check.parse(await request.body())
            service.check(body)
            name = body["model"]
            model = await _find(parts, name)
        except ClientDisconnect:
            return Response(status_code=400)
        except Problem as problem:
            return _error(service.form, problem)
        for fill in service.fill:
            fill(body, model)
        job = Job(
            path=service.path,
            body=json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"),
            model=model,
            need=defaults.need_of(model, service.embedding),
            name=name,
            stream=service.streams and body.get("stream") is True,
            form=service.form,
        )
        return Relay(parts.scheduler, job, parts.stats)

    return endpoint


async def _find(parts: Parts, name: str) -> ServedModel:
    try:
        model = await interfaces.find(parts.catalog, name)
    except NoSuchModelError as error:
        what = (
            f"model {name!r} is not here: /v1/models and `srhpm-plugin models` list those that are"
        )
        raise Problem(404, what, "model_not_found", "model") from error
    if model.unfit is not None:
        raise Problem(400, f"model {name!r} cannot be run: {model.unfit}", "model_unfit", "model")
    return model


def _models(parts: Parts) -> Callable[[Request], object]:
    async def models(request: Request) -> Response:
        listed = [_listed(m) for m in parts.catalog.all() if m.unfit is None]
        return JSONResponse({"object": "list", "data": listed})

    return models


def _model(parts: Parts) -> Callable[[Request], object]:
    async def model(request: Request) -> Response:
        name = request.path_params["model"]
        try:
            return JSONResponse({**_listed(await _find(parts, name)), "id": name})
        except Problem as problem:
            return _error(_OPENAI, problem)

    return model


def _listed(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": int(model.modified.timestamp()),
        "owned_by": _OWNED.get(model.origin, model.origin),
    }


def _error(form: Form, problem: Problem) -> Response:
    return Response(
        form.whole(problem),
        problem.status,
        headers=dict(problem.headers),
        media_type="application/json",
    )

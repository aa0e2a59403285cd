"""``/api/create`` and the blobs it takes its files from. No model file is copied or converted."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from ...errors import UserError
from ...gguf.header import read_header
from ...gguf.reading import read_model
from ..app import Parts
from ..interfaces import DigestMismatchError, NoSuchModelError, ServedModel
from . import requests
from .body import Fields, read_body
from .errors import ApiError
from .models import check_new_name, full_name
from .options import LOADING, SAMPLING, check_option
from .reply import Account, Record, Reply

ROUTE: Final = "/api/create"
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_MOST_FILES = 64


@dataclass(frozen=True)
class Recipe:
    """What a model is made of; names as in Ollama's ``CreateRequest``.

    Attributes:
        source: name of the model it is made from.
        files, draft_files, adapters: digests of blobs.
    """

    name: str
    stream: bool
    source: str
    files: tuple[str, ...]
    draft_files: tuple[str, ...]
    adapters: tuple[str, ...]
    template: str
    system: str
    licenses: tuple[str, ...]
    parameters: Mapping[str, Any]
    messages: tuple[Mapping[str, Any], ...]


async def handle(parts: Parts, request: Request) -> Response:
    """Makes a model of ours from blobs or from another model."""
    recipe = _recipe(await read_body(request))
    await check_new_name(parts, recipe.name, "invalid model name")
    if not recipe.source and not recipe.files:
        raise ApiError(400, "neither 'from' or 'files' was specified")
    account = Account(parts.stats, recipe.name, ROUTE)
    return Reply(_records(parts, recipe), account, None if recipe.stream else _last, count=False)


def _last(_: Record, more: Record) -> Record:
    return more


def _recipe(body: Fields) -> Recipe:
    for name in ("quantize", "quantization", "draft_quantize"):
        if body.text(name):
            what = "models are not quantized here"
            raise ApiError(400, f"{what}: run llama-quantize, then create from its file")
    for name in ("remote_host", "renderer", "parser"):
        if body.text(name):
            what = f"{name} is Ollama's own"
            raise ApiError(400, f"{what}: leave it out, the GGUF's chat template is used")
    license_ = body.raw("license")
    licenses = (license_,) if isinstance(license_, str) else body.texts("license", _MOST_FILES)
    return Recipe(
        name=requests.model_name(body),
        stream=body.flag("stream", True),
        source=body.name("from"),
        files=_digests(body, "files"),
        draft_files=_digests(body, "draft_files"),
        adapters=_digests(body, "adapters"),
        template=body.text("template"),
        system=body.text("system"),
        licenses=tuple(text for text in licenses if text),
        parameters=_parameters(body.object("parameters") or {}),
        messages=tuple(
            {"role": m.role, "content": m.content}
            for m in map(requests.message, body.objects("messages"))
        ),
    )


def _digests(body: Fields, name: str) -> tuple[str, ...]:
    """File names are the client's and mean nothing here; what counts is the digest."""
    files = body.names(name)
    if len(files) > _MOST_FILES:
        raise body.fail(name, f"at most {_MOST_FILES} files")
    return tuple(digest_of(text) for text in files.values())


def digest_of(text: str) -> str:
    """The digits of ``sha256:...``; they become a file's name, so nothing else gets through.

    Raises:
        ApiError: 400, it is none.
    """
    match = _DIGEST.fullmatch(text)
    if match is None:
        raise ApiError(400, "invalid digest format")
    return match[1].lower()


def _parameters(said: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in said.items():
        if name != "stop" and name not in SAMPLING and name not in LOADING:
            raise ApiError(400, f"unknown parameter '{name[:40]}'")
        found.update(check_option(name, value))
    return found


async def _records(parts: Parts, recipe: Recipe) -> AsyncGenerator[Record, None]:
    base = await asyncio.to_thread(_base, parts, recipe)
    for digest in (*recipe.files, *recipe.draft_files, *recipe.adapters):
        yield {"status": f"using existing layer sha256:{digest}"}
    yield {"status": "writing manifest"}
    await asyncio.to_thread(parts.store.save, full_name(recipe.name), _dressed(base, recipe))
    yield {"status": "success"}


def _base(parts: Parts, recipe: Recipe) -> ServedModel:
    """The files."""
    if recipe.source:
        try:
            base = parts.catalog.find(recipe.source)
        except NoSuchModelError:
            do = "`srhpm-plugin models` lists those that are here"
            raise ApiError(404, f"model '{recipe.source}' not found: {do}") from None
        base = replace(base, parent=base.name)
    else:
        base = _of_files(parts, recipe.files)
    if recipe.draft_files:
        drafter = _blob(parts, _only(recipe.draft_files, "drafter"))
        _check(read_model, drafter)
        base = replace(base, drafter=drafter)
    if recipe.adapters:
        adapter = _blob(parts, _only(recipe.adapters, "adapter"))
        if _kind(adapter) != "adapter":
            raise ApiError(
                400, "the adapter is no GGUF of a LoRA: convert_lora_to_gguf.py makes one"
            )
        base = replace(base, adapters=(*base.adapters, adapter))
    return base


def _of_files(parts: Parts, digests: tuple[str, ...]) -> ServedModel:
    models: list[Path] = []
    projectors: list[Path] = []
    for digest in digests:
        path = _blob(parts, digest)
        (projectors if _kind(path) in ("mmproj", "clip") else models).append(path)
    if len(models) != 1 or len(projectors) > 1:
        what = f"{len(models)} model files and {len(projectors)} projectors were sent"
        do = "send one GGUF and at most one projector; llama-gguf-split --merge joins split files"
        raise ApiError(400, f"{what}: {do}")
    info = _check(read_model, models[0])
    return ServedModel(
        name="",
        path=models[0],
        origin="own",
        digest="",
        nbytes=info.file_bytes + sum(p.stat().st_size for p in projectors),
        modified=datetime.now(timezone.utc),
        mmproj=projectors[0] if projectors else None,
    )


def _dressed(base: ServedModel, recipe: Recipe) -> ServedModel:
    """With what the recipe says put over what the base has."""
    parameters = {**base.parameters, **recipe.parameters}
    ctx = parameters.get("num_ctx")
    return replace(
        base,
        template=recipe.template or base.template,
        system=recipe.system or base.system,
        parameters=parameters,
        messages=recipe.messages or base.messages,
        licenses=(*base.licenses, *recipe.licenses),
        ctx=ctx if isinstance(ctx, int) and ctx > 0 else base.ctx,
    )


def _only(digests: tuple[str, ...], what: str) -> str:
    if len(digests) > 1:
        raise ApiError(400, f"only one {what} is supported")
    return digests[0]


def _blob(parts: Parts, digest: str) -> Path:
    path = parts.store.blob(digest)
    if path is None:
        do = f"send it to /api/blobs/sha256:{digest} first"
        raise ApiError(400, f"blob sha256:{digest} not found: {do}")
    return path


def _kind(path: Path) -> str:
    """``general.type`` or the architecture."""
    kv = _check(read_header, path).kv
    kind = kv.get("general.type")
    arch = kv.get("general.architecture")
    return str(arch if kind in (None, "model") and arch else kind)


def _check(read: Any, path: Path) -> Any:
    try:
        return read(path)
    except UserError as error:
        do = "send a GGUF file (convert_hf_to_gguf.py of llama.cpp makes one)"
        raise ApiError(400, f"a file cannot be used: {error.why}; {do}") from None


async def blob(parts: Parts, request: Request) -> Response:
    """Whether a blob is here, or its content."""
    return await (_there if request.method == "HEAD" else _taken)(parts, request)


async def _there(parts: Parts, request: Request) -> Response:
    digest = digest_of(request.path_params["digest"])
    if await asyncio.to_thread(parts.store.blob, digest) is None:
        raise ApiError(404, f"blob {json.dumps('sha256:' + digest)} not found")
    return Response()


async def _taken(parts: Parts, request: Request) -> Response:
    """It is written as it comes, whatever its size."""
    digest = digest_of(request.path_params["digest"])
    if await asyncio.to_thread(parts.store.blob, digest) is not None:
        return Response()
    try:
        await parts.store.receive(digest, request.stream())
    except DigestMismatchError as error:
        expected, got = (json.dumps(f"sha256:{d}") for d in (digest, error.got))
        raise ApiError(400, f"digest mismatch, expected {expected}, got {got}") from None
    return Response(status_code=201)

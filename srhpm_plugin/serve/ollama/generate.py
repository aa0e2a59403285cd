"""``/api/generate``: one prompt, in the model's template unless ``raw``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..app import Parts
from ..interfaces import Engine, ServedModel
from . import conversation, fitting, pieces, requests
from .body import read_body
from .describe import Facts, facts_of
from .engine import detokenize, render, tokenize
from .errors import ApiError
from .finding import find, loading_record, require, thinking
from .fitting import Talk
from .options import Options
from .pieces import Piece
from .reply import Account, Record, Reply, now
from .requests import Generate, Message

ROUTE = "/api/generate"
_OPENING = ("<think>", "<thinking>")


async def handle(parts: Parts, request: Request) -> Response:
    """Answers a prompt; an empty one loads the model, or unloads it with ``keep_alive`` 0."""
    asked = requests.generate(await read_body(request))
    model = await find(parts, asked.model)
    if not asked.prompt and asked.keep_alive == 0:
        await parts.scheduler.unload(model)
        return JSONResponse({**loading_record(asked.model, "unload"), "response": ""})
    if asked.template:
        what = "a template of the request is not rendered here"
        raise ApiError(400, f"{what}: send the prompt as it shall be with raw, or use /api/chat")
    facts = await facts_of(model)
    require(asked.model, facts, "completion", "generate")
    if asked.suffix:
        require(asked.model, facts, "insert", "insert")
    if asked.images:
        require(asked.model, facts, "vision", "images")
        if asked.raw or asked.suffix or asked.context:
            raise ApiError(400, "images do not go with raw, suffix or context: use /api/chat")
    account = Account(parts.stats, asked.model, ROUTE)
    records = _records(parts, model, facts, asked, account)
    alone = not asked.stream or not asked.prompt or asked.render_only
    return Reply(records, account, _fold if alone else None)


async def _records(
    parts: Parts, model: ServedModel, facts: Facts, asked: Generate, account: Account
) -> AsyncGenerator[Record, None]:
    options = Options(model, asked.options)
    if asked.context and asked.think is None:
        asked = replace(asked, think=False)  # a bare prompt's thoughts are not told apart
    talk = Talk(
        asked=asked,
        messages=_messages(model, asked),
        sampling=options.sampling(),
        think=thinking(asked, facts),
    )
    lease = parts.scheduler.lease(model, options.need(), keep_alive=asked.keep_alive)
    async with lease as engine:
        account.leased()
        if not asked.prompt:
            yield {**loading_record(asked.model, "load"), "response": ""}
            return
        if asked.render_only:
            debug: Record = {"rendered_template": await _prompt(engine, talk, asked)}
            if asked.images:
                debug["image_count"] = len(asked.images)
            empty = {"response": "", "done": False, "_debug_info": debug}
            yield {"model": asked.model, "created_at": now(), **empty}
            return
        said: list[str] = []
        async with aclosing(_pieces(engine, talk, asked)) as stream:
            async for piece in stream:
                said.append(piece.content)
                record = _record(asked, piece)
                if piece.reason is not None:
                    if not (asked.raw or asked.suffix or asked.images):
                        record["context"] = await _context(engine, talk, asked, "".join(said))
                    record.update(account.metrics(piece.timings))
                yield record


def _record(asked: Generate, piece: Piece) -> Record:
    record: Record = {"model": asked.model, "created_at": now(), "response": piece.content}
    if piece.thinking:
        record["thinking"] = piece.thinking
    record["done"] = piece.reason is not None
    if piece.reason is not None:
        record["done_reason"] = piece.reason
    if logprobs := fitting.logprobs(asked, piece):
        record["logprobs"] = logprobs
    return record


def _messages(model: ServedModel, asked: Generate) -> list[Message]:
    """The request's system message in place of the store's, whose turns are not repeated when a
    conversation goes on by its tokens."""
    user = Message("user", asked.prompt, images=asked.images)
    system = Message("system", asked.system or model.system or "")
    if asked.context is not None:
        return [system, user] if system.content else [user]
    if asked.system:
        model = replace(model, system=asked.system)
    return conversation.with_stored(model, [user])


async def _pieces(engine: Engine, talk: Talk, asked: Generate) -> AsyncGenerator[Piece, None]:
    if asked.suffix:
        body = {"input_prefix": asked.prompt, "input_suffix": asked.suffix, **talk.sampling}
        stream = pieces.of_prompt(engine, body, "/infill")
    elif asked.raw or asked.context:
        prompt = await _prompt(engine, talk, asked)
        stream = fitting.of_prompt(engine, asked, talk.sampling, prompt)
    else:
        stream = fitting.answer(engine, talk)
    async with aclosing(stream) as found:
        async for piece in found:
            yield piece


async def _prompt(engine: Engine, talk: Talk, asked: Generate) -> str:
    """As the model gets to see it."""
    if asked.raw:
        return asked.prompt
    before = await detokenize(engine, asked.context) if asked.context else ""
    return before + await render(engine, talk.body())


async def _context(engine: Engine, talk: Talk, asked: Generate, said: str) -> list[int]:
    """The tokens of prompt and answer, for a request that goes on from here. Thoughts are left
    out, as templates leave out those of earlier turns."""
    prompt = await _prompt(engine, talk, asked)
    for opening in _OPENING:
        if prompt.rstrip().endswith(opening):
            prompt = prompt.rstrip() + f"\n\n</{opening[1:]}\n\n"
    return await tokenize(engine, prompt + said)


def _fold(whole: Record, more: Record) -> Record:
    """Text and probabilities are joined, everything else is the last record's."""
    record: dict[str, Any] = {**more, "response": whole["response"] + more["response"]}
    if said := whole.get("thinking", "") + more.get("thinking", ""):
        record["thinking"] = said
    if logprobs := [*whole.get("logprobs", ()), *more.get("logprobs", ())]:
        record["logprobs"] = logprobs
    return record

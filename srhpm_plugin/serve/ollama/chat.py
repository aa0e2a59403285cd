"""``/api/chat``."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..app import Parts
from ..interfaces import ServedModel
from . import conversation, fitting, requests
from .body import read_body
from .describe import Facts, facts_of
from .engine import render
from .finding import find, loading_record, require, thinking
from .options import Options
from .reply import Account, Record, Reply, now

ROUTE = "/api/chat"
_NOBODY = {"role": "assistant", "content": ""}


async def handle(parts: Parts, request: Request) -> Response:
    """Answers a conversation; an empty one loads the model, or unloads it with ``keep_alive`` 0."""
    asked = requests.chat(await read_body(request))
    model = await find(parts, asked.model)
    if not asked.messages and asked.keep_alive == 0:
        await parts.scheduler.unload(model)
        return JSONResponse({**loading_record(asked.model, "unload"), "message": _NOBODY})
    facts = await facts_of(model)
    require(asked.model, facts, "completion", "chat")
    if asked.tools:
        require(asked.model, facts, "tools", "tools")
    if any(m.images for m in asked.messages):
        require(asked.model, facts, "vision", "images")
    account = Account(parts.stats, asked.model, ROUTE)
    records = _records(parts, model, facts, asked, account)
    alone = not asked.stream or not asked.messages or asked.render_only
    return Reply(records, account, _fold if alone else None)


async def _records(
    parts: Parts, model: ServedModel, facts: Facts, asked: requests.Chat, account: Account
) -> AsyncGenerator[Record, None]:
    options = Options(model, asked.options)
    think = thinking(asked, facts)
    lease = parts.scheduler.lease(model, options.need(), keep_alive=asked.keep_alive)
    async with lease as engine:
        account.leased()
        if not asked.messages:
            yield {**loading_record(asked.model, "load"), "message": _NOBODY}
            return
        talk = fitting.Talk(
            asked=asked,
            messages=conversation.with_stored(model, asked.messages),
            sampling=options.sampling(),
            think=think,
            tools=asked.tools,
        )
        if asked.render_only:
            images = sum(len(m.images) for m in talk.messages)
            debug: Record = {"rendered_template": await render(engine, talk.body())}
            if images:
                debug["image_count"] = images
            empty = {"message": {"role": "", "content": ""}, "done": False}
            yield {"model": asked.model, "created_at": now(), **empty, "_debug_info": debug}
            return
        async with aclosing(fitting.answer(engine, talk)) as pieces:
            async for piece in pieces:
                message: dict[str, Any] = {"role": "assistant", "content": piece.content}
                if piece.thinking:
                    message["thinking"] = piece.thinking
                if piece.tool_calls:
                    message["tool_calls"] = list(piece.tool_calls)
                record: Record = {"model": asked.model, "created_at": now(), "message": message}
                record["done"] = piece.reason is not None
                if piece.reason is not None:
                    record["done_reason"] = piece.reason
                if logprobs := fitting.logprobs(asked, piece):
                    record["logprobs"] = logprobs
                if piece.reason is not None:
                    record.update(account.metrics(piece.timings))
                yield record


def _fold(whole: Record, more: Record) -> Record:
    """Text and probabilities are joined, everything else is the last record's."""
    a, b = whole["message"], more["message"]
    message = {**a, **b, "content": a["content"] + b["content"]}
    if said := a.get("thinking", "") + b.get("thinking", ""):
        message["thinking"] = said
    record = {**more, "message": message}
    if logprobs := [*whole.get("logprobs", ()), *more.get("logprobs", ())]:
        record["logprobs"] = logprobs
    return record

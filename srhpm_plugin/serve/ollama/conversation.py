"""A conversation as llama-server takes it: it renders all chat templates, nothing here does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..interfaces import ServedModel
from . import media
from .requests import Asked, Message


def with_stored(model: ServedModel, messages: Sequence[Message]) -> list[Message]:
    """The store's turns and system message put before those of a request, as Ollama does."""
    stored = [
        Message(role=str(m.get("role", "user")).lower(), content=str(m.get("content", "")))
        for m in model.messages
    ]
    system = []
    if model.system and not (messages and messages[0].role == "system"):
        system = [Message("system", model.system)]
    return [*system, *stored, *messages]


def body_of(
    asked: Asked,
    messages: Sequence[Message],
    *,
    sampling: Mapping[str, Any],
    think: bool | str | None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The body for ``/v1/chat/completions`` and ``/apply-template``.

    Args:
        asked: for format and probabilities.
        messages: all of them.
        sampling: of :meth:`.options.Options.sampling`.
        think: ``None`` for models that do not.
        tools: offered to the model.
    """
    body: dict[str, Any] = {"messages": [_message(m) for m in messages], **sampling}
    if tools:
        body["tools"] = list(tools)
    if asked.logprobs:
        body["logprobs"] = True
        body["top_logprobs"] = max(asked.top_logprobs, 1)
    if asked.schema is not None:
        schema = {"name": "schema", "schema": asked.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    if think is not None:
        body["chat_template_kwargs"] = {"enable_thinking": bool(think)}
        if isinstance(think, str):
            body["chat_template_kwargs"]["reasoning_effort"] = think
    return body


def _message(message: Message) -> dict[str, Any]:
    said: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.images:
        text = [{"type": "text", "text": message.content}] if message.content else []
        said["content"] = [*text, *(media.part(data) for data in message.images)]
    if message.thinking:  # templates of models that think between tool calls want it back
        said["reasoning_content"] = message.thinking
    if message.tool_calls:
        said["tool_calls"] = [_tool_call(call) for call in message.tool_calls]
    if message.tool_name:
        said["name"] = message.tool_name
    if message.tool_call_id:
        said["tool_call_id"] = message.tool_call_id
    return said


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {
        "id": call["id"],
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }

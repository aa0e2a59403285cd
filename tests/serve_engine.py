"""A llama-server of make-believe: an application that answers as one does, and keeps count."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

TIMINGS = {
    "cache_n": 2,
    "prompt_n": 10,
    "prompt_ms": 20.0,
    "prompt_per_second": 500.0,
    "predicted_n": 5,
    "predicted_ms": 50.0,
    "predicted_per_second": 100.0,
    "speculation": {
        "type": "ngram-simple",
        "n_min": 0,
        "n_max": 7,
        "p_min": 0,
        "passes": 2,
        "drafted": 4,
        "accepted": 3,
        "drafted_per_position": [2, 2],
        "accepted_per_position": [2, 1],
    },
}
USAGE = {
    "completion_tokens": 5,
    "prompt_tokens": 12,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 2},
}
_BASE = {"created": 1700000000, "model": "/models/fake.gguf", "system_fingerprint": "b1-fake"}


@dataclass
class FakeEngine:
    """Attributes:
    pieces: the answer, piece by piece.
    delay: seconds before each piece of a stream.
    script: by path, what to answer instead: ``f(body) -> Response``.
    requests: path and body of everything asked.
    busy: answers on their way.
    hung_up: streams that the client did not read to their end.
    """

    pieces: Sequence[str] = ("Hello", " from", " the", " fake", ".")
    delay: float = 0.0
    script: dict[str, Callable[[Any], Response]] = field(default_factory=dict)
    requests: list[tuple[str, Any]] = field(default_factory=list)
    busy: int = 0
    hung_up: int = 0
    finish_reason: str = "stop"

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def last(self) -> Any:
        """The body of the last request."""
        return self.requests[-1][1]

    def app(self) -> Starlette:
        answers: dict[str, Callable[[Any], Response]] = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._text,
            "/completion": self._completion,
            "/infill": self._completion,
            "/v1/responses": self._responses,
            "/v1/messages": self._messages,
            "/v1/messages/count_tokens": lambda body: JSONResponse(
                {"input_tokens": len(body["messages"])}
            ),
            "/v1/embeddings": self._embeddings,
            "/tokenize": lambda body: JSONResponse(
                {"tokens": list(range(len(str(body["content"]).split())))}
            ),
            "/detokenize": lambda body: JSONResponse(
                {"content": " ".join(f"t{token}" for token in body["tokens"])}
            ),
            "/apply-template": lambda body: JSONResponse(
                {
                    "prompt": "".join(f"<{m['role']}>{m['content']}" for m in body["messages"])
                    + "<assistant>"
                }
            ),
        }

        async def post(request: Request) -> Response:
            path = request.url.path
            raw = await request.body()
            try:
                body = json.loads(raw or b"{}")
            except ValueError:
                return _error(400, "invalid_request_error", "not JSON")
            self.requests.append((path, body))
            return (self.script.get(path) or answers[path])(body)

        async def get(request: Request) -> Response:
            path = request.url.path
            self.requests.append((path, None))
            if path in self.script:
                return self.script[path](None)
            return JSONResponse(_GETS[path])

        return Starlette(
            routes=[Route(path, post, methods=["POST"]) for path in answers]
            + [Route(path, get) for path in _GETS]
        )

    # -- answers -------------------------------------------------------------------------------

    async def _counted(self, lines: Sequence[str]) -> AsyncIterator[str]:
        self.busy += 1
        whole = False
        try:
            for line in lines:
                if self.delay:
                    await asyncio.sleep(self.delay)
                yield line
            whole = True
        finally:
            self.busy -= 1
            self.hung_up += not whole

    def sse(self, messages: Sequence[Any], *, done: bool = True, named: bool = False) -> Response:
        """A stream of messages; ``named`` ones have their type as the event's name."""
        lines = [
            (f"event: {m['type']}\n" if named else "") + f"data: {json.dumps(m)}\n\n"
            for m in messages
        ]
        if done:
            lines.append("data: [DONE]\n\n")
        return StreamingResponse(self._counted(lines), media_type="text/event-stream")

    def _chat(self, body: Any) -> Response:
        if not isinstance(body.get("messages"), list):
            return _error(400, "invalid_request_error", "Expected 'messages' to be an array")
        head = {**_BASE, "id": "chatcmpl-fake", "object": "chat.completion.chunk"}

        def chunk(delta: Any, reason: str | None = None) -> dict[str, Any]:
            return {"choices": [{"finish_reason": reason, "index": 0, "delta": delta}], **head}

        if not body.get("stream"):
            message = {"role": "assistant", "content": self.text}
            choice = {"finish_reason": self.finish_reason, "index": 0, "message": message}
            whole = {"object": "chat.completion", "usage": USAGE, "timings": TIMINGS}
            return JSONResponse({"choices": [choice], **head, **whole})
        messages = [chunk({"role": "assistant", "content": None})]
        messages += [chunk({"content": piece}) for piece in self.pieces]
        messages.append(chunk({}, self.finish_reason))
        if (body.get("stream_options") or {}).get("include_usage"):
            messages.append({"choices": [], **head, "usage": USAGE, "timings": TIMINGS})
        else:
            messages[-1]["timings"] = TIMINGS
        return self.sse(messages)

    def _text(self, body: Any) -> Response:
        head = {**_BASE, "id": "chatcmpl-fake", "object": "text_completion"}

        def chunk(text: str, reason: str | None = None) -> dict[str, Any]:
            choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
            return {"choices": [choice], **head}

        last = {"usage": USAGE, "timings": TIMINGS}
        if not body.get("stream"):
            return JSONResponse({**chunk(self.text, self.finish_reason), **last})
        messages = [chunk(piece) for piece in self.pieces]
        return self.sse([*messages, {**chunk("", self.finish_reason), **last}])

    def _completion(self, body: Any) -> Response:
        end = {
            "index": 0,
            "id_slot": 0,
            "stop": True,
            "model": "/models/fake.gguf",
            "tokens_predicted": 5,
            "tokens_evaluated": 12,
            "prompt": body.get("prompt", ""),
            "truncated": False,
            "stop_type": "limit" if self.finish_reason == "length" else "eos",
            "stopping_word": "",
            "tokens_cached": 16,
            "timings": TIMINGS,
        }
        n = len(self.pieces)
        if not body.get("stream"):
            return JSONResponse({**end, "content": self.text, "tokens": list(range(n))})
        messages: list[dict[str, Any]] = [
            {
                "index": 0,
                "content": piece,
                "tokens": [i],
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": i + 1,
                "tokens_evaluated": 12,
            }
            for i, piece in enumerate(self.pieces)
        ]
        return self.sse([*messages, {**end, "content": "", "tokens": []}], done=False)

    def _responses(self, body: Any) -> Response:
        part = {"type": "output_text", "annotations": [], "logprobs": [], "text": self.text}
        item = {"content": [part], "id": "msg_fake", "role": "assistant", "type": "message"}
        usage = {"input_tokens": 12, "output_tokens": 5, "total_tokens": 17}
        done = {
            "completed_at": 1700000000,
            "created_at": 1700000000,
            "id": "resp_fake",
            "model": "/models/fake.gguf",
            "object": "response",
            "output": [{**item, "status": "completed"}],
            "status": "completed",
            "usage": {**usage, "input_tokens_details": {"cached_tokens": 2}},
        }
        if not body.get("stream"):
            return JSONResponse(done)
        begun = {"id": "resp_fake", "object": "response", "status": "in_progress"}
        messages: list[dict[str, Any]] = [
            {"type": "response.created", "response": begun},
            *(
                {"type": "response.output_text.delta", "item_id": "msg_fake", "delta": piece}
                for piece in self.pieces
            ),
            {"type": "response.completed", "response": done, "timings": TIMINGS},
        ]
        return self.sse(messages, done=False, named=True)

    def _messages(self, body: Any) -> Response:
        message: dict[str, Any] = {
            "id": "chatcmpl-fake",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": self.text}],
            "model": "/models/fake.gguf",
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"cache_read_input_tokens": 2, "input_tokens": 10, "output_tokens": 5},
        }
        if not body.get("stream"):
            return JSONResponse(message)
        begun = {**message, "content": [], "stop_reason": None}
        text = {"type": "text", "text": ""}
        messages: list[dict[str, Any]] = [
            {"type": "message_start", "message": begun},
            {"type": "content_block_start", "index": 0, "content_block": text},
            *(
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": piece},
                }
                for piece in self.pieces
            ),
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
        return self.sse(messages, done=False, named=True)

    def _embeddings(self, body: Any) -> Response:
        inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [
            {"embedding": [0.6, 0.8, 0.0], "index": i, "object": "embedding"}
            for i in range(len(inputs))
        ]
        usage = {"prompt_tokens": 3 * len(inputs), "total_tokens": 3 * len(inputs)}
        return JSONResponse(
            {"model": "/models/fake.gguf", "object": "list", "usage": usage, "data": data}
        )


_GETS: dict[str, Any] = {
    "/health": {"status": "ok"},
    "/props": {
        "default_generation_settings": {"n_ctx": 4096},
        "total_slots": 1,
        "model_path": "/models/fake.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "chat_template": "{{ messages }}",
        "bos_token": "<s>",
        "eos_token": "</s>",
    },
    "/slots": [{"id": 0, "n_ctx": 4096, "is_processing": False}],
}


def _error(status: int, kind: str, message: str) -> Response:
    error = {"code": status, "message": message, "type": kind}
    return JSONResponse({"error": error}, status)


@contextmanager
def listening(app: Any, config: uvicorn.Config | None = None) -> Iterator[str]:
    """The URL under which an application is served for real, from a thread: httpx's own transport
    for applications hands answers over only when they are whole."""
    if config is None:
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2)
    config.port = 0
    server = uvicorn.Server(config)
    sock = config.bind_socket()
    sock.listen()  # clients that come before the thread has begun wait
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        sock.close()
        assert not thread.is_alive(), "the application did not end"

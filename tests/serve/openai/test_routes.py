"""OpenAI's and Anthropic's routes over a fake engine."""

from __future__ import annotations

import json
import socket
import time
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from serve_engine import FakeEngine
from serve_parts import FakeCatalog, FakeScheduler, served
from starlette.responses import JSONResponse, Response

from srhpm_plugin.launch.server import Progress
from srhpm_plugin.serve.app import Parts
from srhpm_plugin.serve.interfaces import BusyError, LoadError, Need
from srhpm_plugin.serve.openai import relay

HI = [{"role": "user", "content": "hi"}]
ENGINE_NAME = "/models/fake.gguf"

# path, a body that it takes, where the answer is a stream of events the end of it
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": HI}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
    ("/v1/messages", {"messages": HI, "max_tokens": 9}),
    ("/v1/embeddings", {"input": ["hi", "ho"]}),
]
SPOKEN = ASKED[:4]


def ask(
    client: httpx.Client, path: str, body: dict[str, Any], model: str = "fake"
) -> httpx.Response:
    return client.post(path, json={"model": model, **body})


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_the_answer_is_the_engines_under_the_clients_name_for_the_model(
    client: httpx.Client, engine_url: str, path: str, body: dict[str, Any]
) -> None:
    direct = httpx.post(engine_url + path, json=body).json()
    answer = ask(client, path, body)
    assert answer.status_code == 200
    assert direct["model"] == ENGINE_NAME
    assert answer.json() == {**direct, "model": "fake"}


@pytest.mark.parametrize(("path", "body"), SPOKEN)
def test_a_stream_differs_from_the_engines_in_the_models_name_alone(
    client: httpx.Client, engine_url: str, path: str, body: dict[str, Any]
) -> None:
    direct = httpx.post(engine_url + path, json={**body, "stream": True})
    answer = ask(client, path, {**body, "stream": True})
    said = direct.text.replace(f'"model": "{ENGINE_NAME}"', '"model": "fake"')
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert ENGINE_NAME not in said
    assert answer.text == said


@pytest.mark.parametrize(("path", "body"), SPOKEN)
def test_pieces_arrive_as_they_are_made(
    client: httpx.Client, fake_engine: FakeEngine, path: str, body: dict[str, Any]
) -> None:
    fake_engine.delay = 0.1
    model = {"model": "fake", "stream": True, **body}
    with client.stream("POST", path, json=model) as answer:
        times = [time.monotonic() for line in answer.iter_lines() if line.startswith("data:")]
    assert len(times) > 4
    assert times[-1] - times[0] > 0.2  # not all at the end


def test_a_client_that_hangs_up_frees_the_engine(
    client: httpx.Client, fake_engine: FakeEngine, scheduler: FakeScheduler, parts: Parts
) -> None:
    fake_engine.delay = 0.2
    body = {"model": "fake", "messages": HI, "stream": True}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())
        assert scheduler.active == 1
    _until(lambda: scheduler.active == 0 and fake_engine.hung_up == 1)
    assert [one.outcome for one in parts.stats.recent()] == ["cancelled"]


def test_a_client_that_hangs_up_before_a_whole_answer_frees_the_engine(
    url: str, fake_engine: FakeEngine, scheduler: FakeScheduler
) -> None:
    async def never(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        fake_engine.hung_up += 1

    fake_engine.script["/v1/chat/completions"] = lambda body: never  # type: ignore[return-value]
    body = json.dumps({"model": "fake", "messages": HI}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as sock:
        sock.sendall(head.encode() + b"\r\n\r\n" + body)
        _until(lambda: scheduler.active == 1 and bool(fake_engine.requests))
    _until(lambda: scheduler.active == 0 and fake_engine.hung_up == 1)


@pytest.mark.parametrize(("path", "body"), ASKED)
def test_a_model_that_is_not_there(client: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = ask(client, path, body, "nobody")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert "nobody" in error["message"]
    if path == "/v1/messages":
        assert answer.json()["type"] == "error"
        assert error["type"] == "not_found_error"
    else:
        assert error["code"] == "model_not_found"
        assert error["param"] == "model"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions", {}, "messages"),
        ("/v1/chat/completions", {"messages": []}, "messages"),
        ("/v1/chat/completions", {"messages": ["hi"]}, "messages[0]"),
        ("/v1/chat/completions", {"messages": HI, "stream": "yes"}, "stream"),
        ("/v1/chat/completions", {"messages": HI, "model": 3}, "model"),
        ("/v1/chat/completions", {"messages": HI, "model": ""}, "model"),
        ("/v1/completions", {"prompt": 3}, "prompt"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {}, "input"),
        ("/v1/responses", {"input": 1}, "input"),
        ("/v1/responses", {"input": "a", "previous_response_id": "r"}, "previous_response_id"),
    ],
)
def test_a_wrong_body_is_refused_before_anything_is_loaded(
    client: httpx.Client,
    scheduler: FakeScheduler,
    parts: Parts,
    path: str,
    body: dict[str, Any],
    param: str,
) -> None:
    answer = ask(client, path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert scheduler.leases == []
    assert parts.stats.recent() == ()


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b"\xff", b'{"model": NaN}', b'{"a":' * 600 + b"1" + b"}" * 600]
)
def test_a_body_that_is_no_json_object_is_refused(client: httpx.Client, raw: bytes) -> None:
    answer = client.post("/v1/chat/completions", content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("address", ["http://10.0.0.1/a.png", "file:///etc/passwd", "//x/a.png"])
@pytest.mark.parametrize("nested", [False, True])
def test_pictures_are_not_fetched(
    client: httpx.Client, scheduler: FakeScheduler, address: str, nested: bool
) -> None:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": address}}]
    if nested:
        parts = [
            {"type": "tool_result", "content": [{"type": "image", "source": {"url": address}}]}
        ]
    message = {"role": "user", "content": parts}
    path = "/v1/messages" if nested else "/v1/chat/completions"
    answer = ask(client, path, {"messages": [message], "max_tokens": 1})
    assert answer.status_code == 400
    assert "data:" in answer.json()["error"]["message"]
    assert scheduler.leases == []


def test_pictures_inside_the_request_go_through(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    ask(client, "/v1/chat/completions", {"messages": [{"role": "user", "content": [picture]}]})
    assert fake_engine.last["messages"][0]["content"] == [picture]


def test_a_slot_is_not_the_clients_to_choose(client: httpx.Client, fake_engine: FakeEngine) -> None:
    ask(client, "/v1/chat/completions", {"messages": HI, "id_slot": 3, "min_p": 0.3})
    assert "id_slot" not in fake_engine.last
    assert fake_engine.last["min_p"] == 0.3


@pytest.mark.parametrize("stream", [False, True])
def test_busy_says_when_to_come_again(
    client: httpx.Client, scheduler: FakeScheduler, parts: Parts, stream: bool
) -> None:
    scheduler.error = BusyError(7)
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": stream})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "7")
    assert "busy" in answer.json()["error"]["message"]
    answer = ask(client, "/v1/messages", {"messages": HI, "max_tokens": 1})
    assert answer.json()["error"]["type"] == "overloaded_error"
    assert {one.outcome for one in parts.stats.recent()} == {"refused"}
    assert parts.stats.troubles() == ()


def test_a_model_that_does_not_load_says_why_and_is_remembered(
    client: httpx.Client, scheduler: FakeScheduler, parts: Parts
) -> None:
    scheduler.error = LoadError("fake needs 9 GB, 4 GB are free: close something")
    answer = ask(client, "/v1/completions", {"prompt": "a"})
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == str(scheduler.error)
    assert parts.stats.troubles()[0].text == str(scheduler.error)
    assert parts.stats.recent()[0].outcome == "failed"


def test_what_the_engine_refuses_comes_in_the_apis_form(
    client: httpx.Client, fake_engine: FakeEngine, parts: Parts
) -> None:
    said = {"code": 400, "message": "too long", "type": "exceed_context_size_error"}
    for path in ("/v1/chat/completions", "/v1/messages"):
        fake_engine.script[path] = lambda body: JSONResponse({"error": said}, 400)
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": True})
    assert answer.status_code == 400
    assert answer.json() == {
        "error": {
            "message": "too long",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
            "param": None,
        }
    }
    # llama-server's own fault, it says, where it is the client's.
    said_of_tools = {"code": 500, "message": "Failed to parse tools: x", "type": "server_error"}
    fake_engine.script["/v1/chat/completions"] = lambda body: JSONResponse(
        {"error": said_of_tools}, 500
    )
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "tools": "x"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    answer = ask(client, "/v1/messages", {"messages": HI, "max_tokens": 1})
    error = {"type": "invalid_request_error", "message": "too long"}
    assert answer.json() == {"type": "error", "error": error}
    assert parts.stats.recent() == ()


def test_an_engine_that_dies_ends_a_stream_with_an_error(
    client: httpx.Client, fake_engine: FakeEngine, parts: Parts
) -> None:
    async def dying(scope: Any, receive: Any, send: Any) -> None:
        head = [(b"content-type", b"text/event-stream"), (b"content-length", b"999")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        piece = b'data: {"choices":[]}\n\n'
        await send({"type": "http.response.body", "body": piece, "more_body": True})
        raise ConnectionAbortedError

    for path, _ in SPOKEN:
        fake_engine.script[path] = lambda body: dying  # type: ignore[return-value]
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": True})
    first, second = answer.text.split("\n\n")[:2]
    assert first == 'data: {"choices":[]}'
    assert json.loads(second.removeprefix("data: "))["error"]["code"] == "server_ended"
    for path, body in SPOKEN[2:]:
        answer = ask(client, path, {**body, "stream": True})
        assert "event: error\ndata: {" in answer.text
    assert parts.stats.recent()[0].outcome == "failed"
    assert "ended" in parts.stats.troubles()[0].text


def test_an_engine_that_cannot_be_reached_is_an_error(
    client: httpx.Client, scheduler: FakeScheduler
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        scheduler.url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        answer = ask(client, "/v1/chat/completions", {"messages": HI})
    assert answer.status_code == 502
    assert answer.json()["error"]["type"] == "api_error"


def test_a_long_load_keeps_a_stream_alive(
    client: httpx.Client, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio
    import contextlib

    monkeypatch.setattr(relay, "_PATIENCE", 0.1)
    scheduler.progress = [Progress("model", 0.5, 1.0)]
    lend = scheduler.lease

    @contextlib.asynccontextmanager
    async def slowly(*args: Any, **kwargs: Any) -> Any:
        kwargs["on_progress"](scheduler.progress[0])
        await asyncio.sleep(0.35)
        async with lend(*args, **kwargs) as engine:
            yield engine

    monkeypatch.setattr(scheduler, "lease", slowly)
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": True})
    assert answer.text.startswith(": loading the model 50%\n\n")
    assert answer.text.rstrip().endswith("data: [DONE]")
    answer = ask(client, "/v1/messages", {"messages": HI, "max_tokens": 1, "stream": True})
    assert answer.text.startswith('event: ping\ndata: {"type":"ping"}\n\n')
    # one that fails after that can only say so in the stream
    scheduler.error = LoadError("no memory: close something")
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": True})
    last = answer.text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["message"] == str(scheduler.error)


class TestDefaults:
    """What the model's store sets."""

    @pytest.fixture(autouse=True)
    def _model(self, catalog: FakeCatalog) -> None:
        parameters = {
            "temperature": 0.2,
            "top_k": 5,
            "stop": ["<end>"],
            "num_predict": 77,
            "num_gpu": 3,
            "num_thread": 2,
            "repeat_last_n": -1,
        }
        catalog.models = [
            served(
                system="Be brief.",
                parameters=parameters,
                ctx=2048,
                messages=({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}),
            )
        ]

    def test_fill_what_a_request_leaves_open(
        self, client: httpx.Client, fake_engine: FakeEngine, scheduler: FakeScheduler
    ) -> None:
        ask(client, "/v1/chat/completions", {"messages": HI})
        sent = fake_engine.last
        assert [m["content"] for m in sent["messages"]] == ["Be brief.", "a", "b", "hi"]
        # OpenAI's own default comes before the store's, as in Ollama
        assert (sent["temperature"], sent["top_p"]) == (1.0, 1.0)
        assert (sent["top_k"], sent["stop"], sent["max_tokens"]) == (5, ["<end>"], 77)
        assert (sent["min_p"], sent["repeat_last_n"]) == (0.0, 2048)
        assert scheduler.leases[0][1] == Need(ctx=2048, gpu_layers=3, threads=2)
        assert scheduler.leases[0][2] is None

    def test_give_way_to_the_request(self, client: httpx.Client, fake_engine: FakeEngine) -> None:
        messages = [{"role": "system", "content": "Be long."}, *HI]
        said = {"temperature": 0, "top_k": 9, "stop": "x", "max_completion_tokens": 3}
        ask(client, "/v1/chat/completions", {"messages": messages, **said})
        sent = fake_engine.last
        assert [m["content"] for m in sent["messages"]] == ["a", "b", "Be long.", "hi"]
        assert {name: sent[name] for name in said} == said
        assert "max_tokens" not in sent

    def test_for_messages_and_responses(
        self, client: httpx.Client, fake_engine: FakeEngine
    ) -> None:
        ask(client, "/v1/messages", {"messages": HI, "max_tokens": 5})
        sent = fake_engine.last
        assert (sent["system"], sent["temperature"], sent["max_tokens"]) == ("Be brief.", 0.2, 5)
        assert [m["content"] for m in sent["messages"]] == ["a", "b", "hi"]
        ask(client, "/v1/responses", {"input": "hi"})
        sent = fake_engine.last
        assert sent["instructions"] == "Be brief."
        assert [m["content"] for m in sent["input"]] == ["a", "b", "hi"]

    def test_embeddings_need_an_engine_of_their_own(
        self, client: httpx.Client, fake_engine: FakeEngine, scheduler: FakeScheduler
    ) -> None:
        ask(client, "/v1/embeddings", {"input": "hi"})
        assert scheduler.leases[0][1].embedding
        assert "temperature" not in fake_engine.last


def test_models_are_listed_as_openai_does(client: httpx.Client, catalog: FakeCatalog) -> None:
    catalog.models += [
        served("hf.co/a/b:Q4", origin="own"),
        served("broken", unfit="it is for pictures"),
    ]
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [m["id"] for m in listed["data"]] == ["fake:latest", "hf.co/a/b:Q4"]
    assert listed["data"][0] == {
        "id": "fake:latest",
        "object": "model",
        "created": 1767323045,
        "owned_by": "ollama",
    }
    assert client.get("/v1/models/hf.co/a/b:Q4").json()["owned_by"] == "library"
    assert client.get("/v1/models/fake").json()["id"] == "fake"
    assert client.get("/v1/models/other").status_code == 404
    unfit = client.get("/v1/models/broken")
    assert unfit.status_code == 400
    assert "pictures" in unfit.json()["error"]["message"]


@pytest.mark.parametrize(("path", "body"), SPOKEN)
@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_counts(
    client: httpx.Client, parts: Parts, path: str, body: dict[str, Any], stream: bool
) -> None:
    ask(client, path, {**body, "stream": stream})
    (one,) = parts.stats.recent()
    assert (one.model, one.route, one.outcome) == ("fake:latest", path, "done")
    assert (one.tokens, one.load_seconds) == (5, 0.25)
    assert one.decode_ms > 0
    if path.endswith("completions"):
        assert (one.drafted, one.accepted, one.tok_s) == ((2, 2), (2, 1), 100.0)


def test_a_name_with_quotes_stays_one(client: httpx.Client, catalog: FakeCatalog) -> None:
    name = 'a"b\\c é'
    catalog.models = [served(name)]
    answer = ask(client, "/v1/chat/completions", {"messages": HI, "stream": True}, name)
    events = [json.loads(x[6:]) for x in answer.text.splitlines() if x.startswith("data: {")]
    assert {event["model"] for event in events} == {name}


def test_the_input_of_a_tool_is_the_models_own(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    content = {"type": "tool_use", "id": "t", "name": "buy", "input": {"model": ENGINE_NAME}}
    said = {"type": "message", "role": "assistant", "content": [content], "model": ENGINE_NAME}
    raw = json.dumps(said, separators=(",", ":"))
    fake_engine.script["/v1/messages"] = lambda body: Response(raw, media_type="application/json")
    answer = ask(client, "/v1/messages", {"messages": HI, "max_tokens": 1}).json()
    assert answer["content"][0]["input"] == {"model": ENGINE_NAME}
    assert answer["model"] == "fake"


def _until(condition: Any, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)

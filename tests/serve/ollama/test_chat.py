"""/api/chat over an engine of make-believe."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest
from serve_engine import TIMINGS, FakeEngine
from serve_models import THINKING, TOOLS
from serve_parts import FakeCatalog, FakeScheduler, served
from starlette.responses import JSONResponse, Response

from srhpm_plugin.serve.app import Parts
from srhpm_plugin.serve.interfaces import BusyError, LoadError, Need
from srhpm_plugin.serve.ollama import fitting
from srhpm_plugin.serve.ollama.describe import Facts
from srhpm_plugin.serve.ollama.finding import thinking
from srhpm_plugin.serve.ollama.requests import Asked
from srhpm_plugin.serve.stats import Finished

HI = [{"role": "user", "content": "hi"}]
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\nrest").decode()
TOOL = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def ask(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/api/chat", json={"model": "fake", "messages": HI, **body})


def whole(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = ask(client, stream=False, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    said: dict[str, Any] = answer.json()
    return said


def refused(answer: httpx.Response) -> tuple[int, str]:
    assert set(answer.json()) == {"error"}
    return answer.status_code, answer.json()["error"]


def counted(parts: Parts, n: int = 1) -> Sequence[Finished]:
    """The figures, which are noted after the last byte is sent."""
    end = time.monotonic() + 5
    while len(parts.stats.recent()) < n and time.monotonic() < end:
        time.sleep(0.01)
    return parts.stats.recent()


def test_a_stream_has_a_line_per_piece_and_one_with_the_figures(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    *pieces, last = lines(ask(client))
    assert [p["message"]["content"] for p in pieces] == list(fake_engine.pieces)
    assert all(p["model"] == "fake" and p["done"] is False for p in pieces)
    assert all(set(p) == {"model", "created_at", "message", "done"} for p in pieces)
    assert last["message"] == {"role": "assistant", "content": ""}
    assert (last["done"], last["done_reason"]) == (True, "stop")
    assert last["prompt_eval_count"] == TIMINGS["cache_n"] + TIMINGS["prompt_n"]
    assert last["prompt_eval_duration"] == 20_000_000
    assert (last["eval_count"], last["eval_duration"]) == (5, 50_000_000)
    assert last["total_duration"] >= last["load_duration"] > 0


def test_without_a_stream_there_is_one_object(
    client: httpx.Client, fake_engine: FakeEngine, parts: Parts
) -> None:
    said = whole(client)
    assert said["message"] == {"role": "assistant", "content": fake_engine.text}
    assert said["done_reason"] == "stop"
    [one] = counted(parts)
    assert (one.model, one.route, one.outcome, one.tokens) == ("fake", "/api/chat", "done", 5)
    assert one.drafted == (2, 2)


def test_options_have_ollamas_defaults_and_reach_the_engine(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    whole(client, options={"temperature": 0, "num_predict": 7, "stop": ["x"], "top_k": 3.0})
    sent = fake_engine.last
    assert (sent["temperature"], sent["n_predict"], sent["stop"], sent["top_k"]) == (0, 7, ["x"], 3)
    assert (sent["top_p"], sent["min_p"], sent["repeat_last_n"], sent["n_keep"]) == (0.9, 0, 64, 4)
    assert (sent["repeat_penalty"], sent["seed"]) == (1.0, -1)


def test_the_store_comes_before_defaults_and_the_request_before_the_store(
    client: httpx.Client, catalog: FakeCatalog, fake_engine: FakeEngine, scheduler: FakeScheduler
) -> None:
    parameters = {"top_p": 0.5, "top_k": 9, "stop": ["<end>"], "num_gpu": 2, "nonsense": 1}
    turns = ({"role": "user", "content": "a"}, {"role": "assistant", "content": "b"})
    stored = served(parameters=parameters, ctx=3000, system="be brief", messages=turns)
    catalog.models = [stored]
    whole(client, options={"top_k": 1, "num_thread": 3})
    sent = fake_engine.last
    assert (sent["top_p"], sent["top_k"], sent["stop"]) == (0.5, 1, ["<end>"])
    assert [m["content"] for m in sent["messages"]] == ["be brief", "a", "b", "hi"]
    assert scheduler.leases == [(stored, Need(ctx=3000, gpu_layers=2, threads=3), None)]
    whole(client, messages=[{"role": "system", "content": "mine"}, *HI], options={"num_ctx": 9})
    assert [m["content"] for m in fake_engine.last["messages"]] == ["a", "b", "mine", "hi"]
    assert scheduler.leases[-1][1].ctx == 9
    whole(client, options={"num_ctx": 1})  # a server would not start
    assert scheduler.leases[-1][1].ctx == 4


def test_keep_alive_in_all_its_forms(client: httpx.Client, scheduler: FakeScheduler) -> None:
    for said, seconds in (
        ("10m", 600.0),
        ("1h30m", 5400.0),
        (30, 30.0),
        (-1, -1.0),
        ("-1m", -1.0),
        (0, 0.0),
        (None, None),
    ):
        whole(client, keep_alive=said)
        assert scheduler.leases[-1][2] == seconds


def test_an_empty_conversation_loads_and_unloads(
    client: httpx.Client, scheduler: FakeScheduler, fake_engine: FakeEngine
) -> None:
    loaded = ask(client, messages=[]).json()
    assert (loaded["done"], loaded["done_reason"]) == (True, "load")
    assert loaded["message"] == {"role": "assistant", "content": ""}
    assert len(scheduler.leases) == 1 and fake_engine.requests == []
    unloaded = ask(client, messages=[], keep_alive=0).json()
    assert unloaded["done_reason"] == "unload"
    assert scheduler.unloaded == ["fake:latest"] and len(scheduler.leases) == 1


def test_formats(client: httpx.Client, fake_engine: FakeEngine) -> None:
    whole(client, format="json")
    assert fake_engine.last["response_format"]["json_schema"]["schema"] == {"type": "object"}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    whole(client, format=schema)
    assert fake_engine.last["response_format"]["json_schema"]["schema"] == schema
    for nothing in (None, ""):
        whole(client, format=nothing)
        assert "response_format" not in fake_engine.last
    assert refused(ask(client, format="xml"))[0] == 400


def test_thinking_is_asked_for_and_told_apart(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    add_model("thinker", THINKING)
    deltas = [{"reasoning_content": "hm"}, {"reasoning_content": "m"}, {"content": "yes"}]
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [{"choices": [{"delta": delta}]} for delta in deltas]
        + [{"choices": [{"delta": {}, "finish_reason": "length"}], "timings": TIMINGS}]
    )
    said = whole(client, model="thinker")
    assert said["message"] == {"role": "assistant", "content": "yes", "thinking": "hmm"}
    assert said["done_reason"] == "length"
    assert fake_engine.last["chat_template_kwargs"] == {"enable_thinking": True}
    whole(client, model="thinker", think=False)
    assert fake_engine.last["chat_template_kwargs"] == {"enable_thinking": False}
    whole(client, model="thinker", think="low")
    kwargs = {"enable_thinking": True, "reasoning_effort": "low"}
    assert fake_engine.last["chat_template_kwargs"] == kwargs
    streamed = lines(ask(client, model="thinker"))
    assert [p["message"].get("thinking") for p in streamed] == ["hm", "m", None, None]


def test_a_model_without_the_highest_level_gets_the_one_below() -> None:
    asked = Asked("m", think="max")
    levels = [
        thinking(asked, Facts(family=family, capabilities=("completion", "thinking")))
        for family in ("gpt-oss", "qwen3")
    ]
    assert levels == ["high", "max"]


def test_a_model_that_does_not_think_says_so(client: httpx.Client, fake_engine: FakeEngine) -> None:
    assert refused(ask(client, think=True)) == (400, '"fake" does not support thinking')
    whole(client, think=False)
    assert "chat_template_kwargs" not in fake_engine.last


def test_tool_calls_have_objects_as_arguments(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    add_model("able", TOOLS)
    deltas = [
        {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "weather"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"city": '}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "function": {"name": "time", "arguments": ""}}]},
    ]
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [{"choices": [{"delta": delta}]} for delta in deltas]
        + [{"choices": [{"delta": {}, "finish_reason": "tool_calls"}], "timings": TIMINGS}]
    )
    [said] = lines(ask(client, model="able", tools=[TOOL]))
    assert said["done_reason"] == "stop"
    assert said["message"]["tool_calls"] == [
        {"id": "c1", "function": {"index": 0, "name": "weather", "arguments": {"city": "Oslo"}}},
        {"id": "c2", "function": {"index": 1, "name": "time", "arguments": {}}},
    ]
    assert fake_engine.last["tools"] == [TOOL]
    answered = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": said["message"]["tool_calls"]},
        {"role": "tool", "content": "cold", "tool_name": "weather", "tool_call_id": "c1"},
    ]
    whole(client, model="able", tools=[TOOL], messages=answered)
    _, call, result = fake_engine.last["messages"]
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert result == {"role": "tool", "content": "cold", "name": "weather", "tool_call_id": "c1"}


def test_tools_need_a_template_that_shows_them(client: httpx.Client) -> None:
    assert refused(ask(client, tools=[TOOL])) == (400, '"fake" does not support tools')


def test_arguments_cut_off_are_an_error_that_says_what_to_do(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    add_model("able", TOOLS)
    delta = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": '{"a'}}]}
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [{"choices": [{"delta": delta, "finish_reason": "length"}]}]
    )
    status, text = refused(ask(client, model="able", tools=[TOOL]))
    assert status == 500 and "num_predict" in text


def test_images_need_a_projector_and_a_known_kind(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    picture = [{"role": "user", "content": "what?", "images": [PNG]}]
    assert refused(ask(client, messages=picture)) == (400, '"fake" does not support images')
    seeing = add_model("seeing", mmproj=add_model("projector").path)
    whole(client, model=seeing.name, messages=picture)
    text, image = fake_engine.last["messages"][0]["content"]
    assert text == {"type": "text", "text": "what?"}
    assert image["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    webp = base64.b64encode(b"RIFF0000WEBPVP8 ").decode()
    said = ask(client, model=seeing.name, messages=[{**picture[0], "images": [webp]}])
    assert refused(said) == (
        400,
        "WebP is no image that can be read: send PNG, JPEG, GIF or BMP",
    )
    broken = ask(client, model=seeing.name, messages=[{**picture[0], "images": ["???"]}])
    assert refused(broken)[0] == 400


def test_logprobs_as_many_as_asked_for(client: httpx.Client, fake_engine: FakeEngine) -> None:
    other = {"id": 2, "token": "b", "bytes": [98], "logprob": -2.0}
    token = {"id": 1, "token": "a", "bytes": [97], "logprob": -1.0, "top_logprobs": [other]}
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [{"choices": [{"delta": {"content": "a"}, "logprobs": {"content": [token]}}]}] * 2
        + [{"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": TIMINGS}]
    )
    plain = {"token": "a", "logprob": -1.0, "bytes": [97]}
    assert whole(client, logprobs=True)["logprobs"] == [plain, plain]
    assert fake_engine.last["top_logprobs"] == 1
    top = {**plain, "top_logprobs": [{"token": "b", "logprob": -2.0, "bytes": [98]}]}
    assert whole(client, logprobs=True, top_logprobs=3)["logprobs"] == [top, top]
    assert fake_engine.last["top_logprobs"] == 3
    assert "logprobs" not in whole(client)
    problem = "top_logprobs must be between 0 and 20"
    assert refused(ask(client, top_logprobs=21)) == (400, problem)


def test_the_rendered_prompt_can_be_seen(client: httpx.Client, fake_engine: FakeEngine) -> None:
    said = ask(client, _debug_render_only=True).json()
    assert said["_debug_info"] == {"rendered_template": "<user>hi<assistant>"}
    assert [path for path, _ in fake_engine.requests] == ["/apply-template"]


class Full:
    """Answers only what fits: a word is a token."""

    def __init__(self, engine: FakeEngine, n_ctx: int) -> None:
        self.answers, self.n_ctx = engine, n_ctx
        engine.script["/v1/chat/completions"] = self.chat
        engine.script["/completion"] = self.complete

    def chat(self, body: Any) -> Response:
        words = sum(len(m["content"].split()) for m in body["messages"])
        return self.answers._chat(body) if words < self.n_ctx else self.full()

    def complete(self, body: Any) -> Response:
        said = body["prompt"]
        n = len(said.split()) if isinstance(said, str) else len(said)
        return self.answers._completion(body) if n < self.n_ctx else self.full()

    def full(self) -> Response:
        error = {"code": 400, "message": "too many", "type": "exceed_context_size_error"}
        return JSONResponse({"error": {**error, "n_ctx": self.n_ctx}}, 400)


def test_the_oldest_messages_are_dropped_when_the_context_is_full(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    Full(fake_engine, 10)
    system = {"role": "system", "content": "rule"}
    turns = [{"role": "user", "content": f"w{i} " * 3} for i in range(9)]
    assert whole(client, messages=[system, *turns])["message"]["content"] == fake_engine.text
    kept = fake_engine.last["messages"]
    assert kept[0] == system
    assert [m["content"].split()[0] for m in kept[1:]] == ["w7", "w8"]
    status, text = refused(ask(client, messages=[system, *turns], truncate=False))
    assert (status, text) == (400, fitting.TOO_LONG)


def test_the_middle_of_a_message_that_is_too_long_itself_is_cut_out(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    Full(fake_engine, 20)
    long = [{"role": "user", "content": "word " * 100}]
    assert whole(client, messages=long)["message"]["content"] == fake_engine.text
    prompt = fake_engine.last["prompt"]
    assert prompt[:4] == [0, 1, 2, 3] and prompt[-1] == 100 and len(prompt) == 12
    assert refused(ask(client, messages=long, shift=False)) == (400, fitting.TOO_LONG)


def test_cutting_keeps_what_was_asked_for() -> None:
    assert fitting.cut(range(5), 20, 4) == [0, 1, 2, 3, 4]
    assert fitting.cut(range(100), 20, 0) == list(range(90, 100))
    assert fitting.cut(range(100), 20, -1) == list(range(19))
    assert fitting.cut(range(100), 20, 50) == list(range(19))


def test_what_goes_wrong_before_the_answer_has_a_status(
    client: httpx.Client, scheduler: FakeScheduler, parts: Parts, fake_engine: FakeEngine
) -> None:
    scheduler.error = BusyError(7)
    answer = ask(client)
    assert refused(answer)[0] == 503 and answer.headers["retry-after"] == "7"
    assert answer.json()["error"].startswith("server busy, please try again.")
    scheduler.error = LoadError("no room: close something")
    assert refused(ask(client)) == (500, "no room: close something")
    scheduler.error = None
    error = {"error": {"code": 400, "message": "bad schema", "type": "invalid_request_error"}}
    fake_engine.script["/v1/chat/completions"] = lambda body: JSONResponse(error, 400)
    assert refused(ask(client)) == (400, "bad schema")
    assert [one.outcome for one in counted(parts, 2)] == ["failed", "refused"]
    assert [t.text for t in parts.stats.troubles()] == ["no room: close something"]


def test_what_goes_wrong_later_is_a_line(client: httpx.Client, fake_engine: FakeEngine) -> None:
    broken = {"error": {"code": 500, "message": "out of paper", "type": "server_error"}}
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [{"choices": [{"delta": {"content": "He"}}]}, broken]
    )
    first, last = lines(ask(client))
    assert first["message"]["content"] == "He"
    assert last == {"error": "out of paper"}
    assert refused(ask(client, stream=False)) == (500, "out of paper")


@pytest.mark.parametrize("stream", [True, False])
def test_hanging_up_frees_engine_and_lease(
    client: httpx.Client,
    url: str,
    fake_engine: FakeEngine,
    scheduler: FakeScheduler,
    parts: Parts,
    stream: bool,
) -> None:
    fake_engine.delay = 0.3
    body = {"model": "fake", "messages": HI, "stream": stream}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{url}/api/chat", json=body, timeout=0.5, trust_env=False)
    end = time.monotonic() + 5
    while (scheduler.active or fake_engine.busy) and time.monotonic() < end:
        time.sleep(0.02)
    assert (scheduler.active, fake_engine.busy, fake_engine.hung_up) == (0, 0, 1)
    assert [one.outcome for one in counted(parts)] == ["cancelled"]

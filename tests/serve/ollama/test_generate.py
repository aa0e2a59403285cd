"""/api/generate over an engine of make-believe."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from serve_engine import TIMINGS, FakeEngine
from serve_models import THINKING
from serve_parts import FakeCatalog, FakeScheduler, served
from starlette.responses import JSONResponse


def ask(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/api/generate", json={"model": "fake", "prompt": "hi", **body})


def whole(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = ask(client, stream=False, **body)
    assert answer.status_code == 200, answer.text
    said: dict[str, Any] = answer.json()
    return said


def paths(fake_engine: FakeEngine) -> list[str]:
    return [path for path, _ in fake_engine.requests]


def test_a_stream_ends_with_the_tokens_of_prompt_and_answer(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    answer = ask(client)
    *pieces, last = [json.loads(line) for line in answer.text.splitlines()]
    assert [p["response"] for p in pieces] == list(fake_engine.pieces)
    assert (last["response"], last["done"], last["done_reason"]) == ("", True, "stop")
    assert last["eval_count"] == TIMINGS["predicted_n"]
    tokenized = [b["content"] for path, b in fake_engine.requests if path == "/tokenize"]
    assert tokenized == ["<user>hi<assistant>" + fake_engine.text]
    assert last["context"] == list(range(len(tokenized[0].split())))


def test_it_goes_on_from_a_context(
    client: httpx.Client, catalog: FakeCatalog, fake_engine: FakeEngine
) -> None:
    turns = ({"role": "user", "content": "a"},)
    catalog.models = [served(system="rule", messages=turns)]
    said = whole(client, context=[1, 2])
    [prompt] = [b["prompt"] for path, b in fake_engine.requests if path == "/completion"]
    assert prompt == "t1 t2<system>rule<user>hi<assistant>"
    assert said["response"] == fake_engine.text and said["context"]
    assert "/v1/chat/completions" not in paths(fake_engine)
    whole(client)
    messages = next(b for p, b in fake_engine.requests if p == "/v1/chat/completions")["messages"]
    assert [m["content"] for m in messages] == ["rule", "a", "hi"]


def test_a_system_message_of_the_request_replaces_the_stores(
    client: httpx.Client, catalog: FakeCatalog, fake_engine: FakeEngine
) -> None:
    catalog.models = [served(system="rule")]
    whole(client, system="other")
    messages = next(b for p, b in fake_engine.requests if p == "/v1/chat/completions")["messages"]
    assert [m["content"] for m in messages] == ["other", "hi"]


def test_raw_goes_to_the_model_as_it_is(client: httpx.Client, fake_engine: FakeEngine) -> None:
    said = whole(client, raw=True, prompt="<s>hi", format="json", logprobs=True)
    assert "context" not in said
    assert paths(fake_engine) == ["/completion"]
    sent = fake_engine.last
    assert (sent["prompt"], sent["json_schema"], sent["n_probs"]) == (
        "<s>hi",
        {"type": "object"},
        1,
    )
    answer = ask(client, raw=True, system="no")
    problem = "raw mode does not support template, system, or context"
    assert (answer.status_code, answer.json()) == (400, {"error": problem})


def test_a_suffix_is_filled_in_up_to(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    answer = ask(client, suffix="}")
    assert answer.json() == {"error": '"fake" does not support insert'}
    add_model("coder", fields={"tokenizer.ggml.fim_pre_token_id": 3})
    said = whole(client, model="coder", prompt="f() {", suffix="}")
    assert said["response"] == fake_engine.text
    assert paths(fake_engine) == ["/infill"]
    assert (fake_engine.last["input_prefix"], fake_engine.last["input_suffix"]) == ("f() {", "}")


def test_an_empty_prompt_loads_and_unloads(client: httpx.Client, scheduler: FakeScheduler) -> None:
    loaded = ask(client, prompt="").json()
    assert {k: v for k, v in loaded.items() if k != "created_at"} == {
        "model": "fake",
        "response": "",
        "done": True,
        "done_reason": "load",
    }
    assert ask(client, prompt="", keep_alive="0s").json()["done_reason"] == "unload"
    assert scheduler.unloaded == ["fake:latest"]


def test_a_prompt_with_keep_alive_0_is_answered_first(
    client: httpx.Client, scheduler: FakeScheduler, fake_engine: FakeEngine
) -> None:
    assert whole(client, keep_alive=0)["response"] == fake_engine.text
    assert scheduler.leases[-1][2] == 0 and scheduler.unloaded == []


def test_thoughts_are_told_apart_and_not_kept_in_the_context(
    client: httpx.Client, add_model: Callable[..., Any], fake_engine: FakeEngine
) -> None:
    add_model("thinker", THINKING)
    fake_engine.script["/v1/chat/completions"] = lambda body: fake_engine.sse(
        [
            {"choices": [{"delta": {"reasoning_content": "hm"}}]},
            {"choices": [{"delta": {"content": "yes"}}]},
            {"choices": [{"delta": {}, "finish_reason": "stop"}], "timings": TIMINGS},
        ]
    )
    fake_engine.script["/apply-template"] = lambda body: JSONResponse({"prompt": "P<think>\n"})
    said = whole(client, model="thinker")
    assert (said["thinking"], said["response"]) == ("hm", "yes")
    assert fake_engine.last == {"content": "P<think>\n\n</think>\n\nyes", "add_special": False}
    whole(client, model="thinker", context=[1])
    sent = [b for p, b in fake_engine.requests if p == "/apply-template"][-1]
    assert sent["chat_template_kwargs"] == {"enable_thinking": False}


def test_a_template_of_the_request_is_refused(client: httpx.Client) -> None:
    answer = ask(client, template="{{ .Prompt }}")
    assert answer.status_code == 400 and "raw" in answer.json()["error"]


def test_the_rendered_prompt_can_be_seen(client: httpx.Client) -> None:
    said = ask(client, _debug_render_only=True).json()
    assert said["_debug_info"] == {"rendered_template": "<user>hi<assistant>"}
    assert said["done"] is False


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, "model must be a string"),
    ({"model": "a\nb"}, "model must be a printable string"),
    ({"model": ""}, "model is required"),
    ({"prompt": 3}, "prompt must be a string"),
    ({"stream": "yes"}, "stream must be true or false"),
    ({"options": []}, "options must be an object"),
    ({"options": {"top_k": "a"}}, 'option "top_k" must be of type integer'),
    ({"options": {"temperature": 1e300}}, 'option "temperature" is out of range'),
    ({"options": {"stop": [1]}}, 'option "stop" must be of an array of strings'),
    ({"options": {"use_mmap": 1}}, 'option "use_mmap" must be of type boolean'),
    ({"keep_alive": "soon"}, "keep_alive: no duration"),
    ({"keep_alive": True}, "keep_alive: "),
    ({"think": "much"}, 'invalid think value: "much"'),
    ({"context": [1, "a"]}, "context must be a list of token ids"),
    ({"context": [-1]}, "context must be a list of token ids"),
    ({"images": "abc"}, "images must be a list"),
    ({"format": 5}, "invalid format: 5"),
    ({"top_logprobs": 2**70}, "top_logprobs must be"),
]


def test_wrong_types_are_refused_with_the_fields_name(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    for body, part in WRONG:
        answer = ask(client, **body)
        assert answer.status_code == 400, body
        assert part in answer.json()["error"]
    assert fake_engine.requests == []


def test_what_is_no_object_is_refused(client: httpx.Client) -> None:
    for raw in (
        b"",
        b"  ",
        b"{",
        b"[]",
        b"3",
        b"[" * 100_000,
        b"\xff\xfe{",
        b'{"model": "fake", "a": NaN}',
    ):
        answer = client.post("/api/generate", content=raw)
        assert answer.status_code == 400 and answer.json()["error"]


def test_half_a_surrogate_pair_is_replaced(client: httpx.Client, fake_engine: FakeEngine) -> None:
    raw = rb'{"model": "fake", "prompt": "a\ud83d b \ud83d\ude00", "raw": true, "stream": false}'
    assert client.post("/api/generate", content=raw).status_code == 200
    assert fake_engine.last["prompt"] == "a\N{REPLACEMENT CHARACTER} b \N{GRINNING FACE}"


def test_unknown_fields_options_and_null_are_passed_over(client: httpx.Client) -> None:
    said = whole(client, nonsense=1, options={"mirostat": 2, "top_k": None}, think=None)
    assert said["done"]


def test_a_model_that_is_not_there(client: httpx.Client) -> None:
    answer = ask(client, model="nobody")
    assert (answer.status_code, answer.json()) == (404, {"error": "model 'nobody' not found"})


def test_a_model_that_cannot_be_run_says_why(client: httpx.Client, catalog: FakeCatalog) -> None:
    catalog.models = [served(unfit="its format is MLX")]
    answer = ask(client)
    assert answer.status_code == 400 and "its format is MLX" in answer.json()["error"]
    assert client.get("/api/tags").json() == {"models": []}

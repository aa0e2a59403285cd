"""/api/embed and /api/embeddings over an engine of make-believe."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from serve_engine import FakeEngine
from serve_parts import FakeScheduler
from starlette.responses import JSONResponse, Response

from srhpm_plugin.serve.interfaces import Need


def embed(client: httpx.Client, **body: Any) -> httpx.Response:
    return client.post("/api/embed", json={"model": "fake", **body})


def test_one_and_several(
    client: httpx.Client, scheduler: FakeScheduler, fake_engine: FakeEngine
) -> None:
    said = embed(client, input="hi", options={"num_ctx": 64}, keep_alive=5).json()
    assert said["embeddings"] == [pytest.approx([0.6, 0.8, 0.0])]
    assert (said["model"], said["prompt_eval_count"]) == ("fake", 3)
    assert said["total_duration"] >= said["load_duration"] > 0
    assert scheduler.leases[-1][1:] == (Need(ctx=64, embedding=True), 5.0)
    assert len(embed(client, input=["a", "b"]).json()["embeddings"]) == 2
    assert fake_engine.last == {"input": ["a", "b"]}


def test_vectors_come_in_order_cut_and_of_length_one(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    data = [{"index": 1, "embedding": [0.0, 2.0, 1.0]}, {"index": 0, "embedding": [3.0, 4.0, 9.0]}]
    fake_engine.script["/v1/embeddings"] = lambda body: JSONResponse({"data": data})
    said = embed(client, input=["a", "b"], dimensions=2).json()["embeddings"]
    assert said == [pytest.approx([0.6, 0.8]), pytest.approx([0.0, 1.0])]
    zero = [{"index": 0, "embedding": [0.0, 0.0]}]
    fake_engine.script["/v1/embeddings"] = lambda body: JSONResponse({"data": zero})
    assert embed(client, input="a").json()["embeddings"] == [[0.0, 0.0]]


def test_no_input_only_loads(client: httpx.Client, scheduler: FakeScheduler) -> None:
    for nothing in ({}, {"input": ""}, {"input": []}, {"input": None}):
        said = embed(client, **nothing)
        assert said.json() == {"model": "fake", "embeddings": []}
    assert len(scheduler.leases) == 4
    older = client.post("/api/embeddings", json={"model": "fake"})
    assert older.json() == {"embedding": []}


def test_the_older_route(client: httpx.Client) -> None:
    said = client.post("/api/embeddings", json={"model": "fake", "prompt": "hi"}).json()
    assert said == {"embedding": pytest.approx([0.6, 0.8, 0.0])}


def test_too_long_an_input_is_cut_unless_told_not_to(
    client: httpx.Client, fake_engine: FakeEngine
) -> None:
    def limited(body: Any) -> Response:
        if all(len(text.split()) <= 6 for text in body["input"]):
            return fake_engine._embeddings(body)
        error = {"code": 400, "type": "exceed_context_size_error", "message": "no", "n_ctx": 8}
        return JSONResponse({"error": error}, 400)

    fake_engine.script["/v1/embeddings"] = limited
    said = embed(client, input=["short", "word " * 20])
    assert len(said.json()["embeddings"]) == 2
    assert fake_engine.last["input"] == ["short", "t0 t1 t2 t3 t4 t5"]
    refused = embed(client, input="word " * 20, truncate=False)
    problem = "the input length exceeds the context length"
    assert (refused.status_code, refused.json()) == (400, {"error": problem})


def test_what_is_refused(client: httpx.Client) -> None:
    for wrong in (5, [1], ["a", None], {"a": 1}):
        answer = embed(client, input=wrong)
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid input type"})
    problem = 'model "nobody" not found, try pulling it first'
    assert embed(client, model="nobody").json() == {"error": problem}
    assert embed(client, input="a", dimensions=-1).status_code == 400

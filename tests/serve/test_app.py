"""The application as a whole, and the fakes that its tests build on."""

from __future__ import annotations

import json

import httpx
from serve_engine import FakeEngine

from srhpm_plugin.serve.app import Parts


def test_the_fake_streams_and_notices_who_hangs_up(
    fake_engine: FakeEngine, engine_url: str
) -> None:
    fake_engine.delay = 0.05
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.stream("POST", engine_url + "/v1/chat/completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: {")]
    pieces = [json.loads(line[6:])["choices"][0]["delta"].get("content") for line in lines]
    assert "".join(piece or "" for piece in pieces) == fake_engine.text
    assert fake_engine.hung_up == 0
    with httpx.stream("POST", engine_url + "/v1/chat/completions", json=body) as answer:
        next(answer.iter_lines())
    for _ in range(100):
        if fake_engine.hung_up:
            break
        httpx.get(engine_url + "/health")
    assert (fake_engine.busy, fake_engine.hung_up) == (0, 1)


def test_an_unknown_route_is_not_found(client: httpx.Client, parts: Parts) -> None:
    assert client.get("/no-such-route").status_code == 404

"""The application as a whole, and the fakes that its tests build on."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from serve_engine import FakeEngine
from serve_parts import FakeCatalog

from srhpm_plugin.serve.app import Parts
from srhpm_plugin.serve.interfaces import NoSuchModelError, ServedModel


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


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/chat", "/v1/messages"])
def test_a_slow_disk_holds_nobody_else_up(
    client: httpx.Client, catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A name that is not known is looked for on disk, while others are answered."""
    looking, seen = threading.Event(), threading.Event()

    def find(name: str) -> ServedModel:
        looking.set()
        seen.wait(10)
        raise NoSuchModelError(name)

    monkeypatch.setattr(catalog, "find", find)
    body = {"model": "nobody", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(httpx.post, str(client.base_url.join(path)), json=body, timeout=20)
        assert looking.wait(10)
        try:
            assert client.get("/api/version", timeout=5).status_code == 200
            assert client.post(path, json={**body, "model": "fake"}, timeout=5).status_code == 200
        finally:
            seen.set()
        assert waiting.result().status_code == 404

"""In front of another host: what is ours, what passes through, and how it does."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from serve_engine import FakeEngine, listening
from serve_parts import FakeCatalog, FakeScheduler, served
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from srhpm_plugin.errors import UserError
from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.front import Front
from srhpm_plugin.serve.interfaces import ServedModel
from srhpm_plugin.serve.upstream import Upstream, base_url, not_ourselves

HI = [{"role": "user", "content": "hi"}]
PACKED = gzip.compress(b"packed by the other host")


@dataclass
class Other:
    """Another host, which writes down what it gets."""

    models: list[str] = field(default_factory=lambda: ["llama:latest", "plain:latest"])
    seen: list[tuple[str, str, list[tuple[str, str]], bytes]] = field(default_factory=list)
    arrived: int = 0  # bytes of a blob so far
    gone: int = 0  # clients that hung up
    go_on: threading.Event = field(default_factory=threading.Event)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/tags", self.tags),
                Route("/api/blobs/{digest}", self.blob, methods=["POST", "HEAD"]),
                Route("/v1/chat/completions", self.stream, methods=["POST"]),
                Route("/{rest:path}", self.any, methods=["GET", "POST", "DELETE", "HEAD", "PUT"]),
            ]
        )

    async def tags(self, request: Request) -> Response:
        listed = [{"name": name, "model": name, "theirs": True} for name in self.models]
        return JSONResponse({"models": listed, "more": 1})

    async def blob(self, request: Request) -> Response:
        try:
            async for piece in request.stream():
                self.arrived += len(piece)
        except ClientDisconnect:
            self.gone += 1
            raise
        return Response(status_code=201)

    async def stream(self, request: Request) -> Response:
        await request.body()

        async def pieces() -> Any:
            try:
                for i in range(1000):
                    yield f"data: {i}\n\n"
                    while not self.go_on.is_set():
                        await _nap()
            finally:
                self.gone += not self.go_on.is_set()

        return StreamingResponse(pieces(), media_type="text/event-stream")

    async def any(self, request: Request) -> Response:
        body = await request.body()
        headers = [(k.decode(), v.decode()) for k, v in request.headers.raw]
        target = request.scope["raw_path"].decode() + "?" + request.url.query
        self.seen.append((request.method, target, headers, body))
        if request.url.path == "/packed":
            return Response(PACKED, headers={"Content-Encoding": "gzip"})
        answer = JSONResponse({"theirs": True}, 418, {"X-Theirs": "yes"})
        answer.headers.append("set-cookie", "a=1")
        answer.headers.append("set-cookie", "b=2")
        return answer


async def _nap() -> None:
    import asyncio

    await asyncio.sleep(0.01)


@pytest.fixture
def other() -> Other:
    return Other()


@pytest.fixture
def other_url(other: Other) -> Iterator[str]:
    with listening(other.app()) as url:
        yield url


@pytest.fixture
def catalog() -> FakeCatalog:
    """Ours alone; both hosts' with a gain and without."""
    return FakeCatalog([served("fake:latest"), served("llama:latest"), served("plain:latest")])


@pytest.fixture
def parts(parts: Parts, other_url: str) -> Parts:
    def gain(model: ServedModel) -> bool:
        return not model.name.startswith("plain")

    return replace(
        parts, front=lambda app, parts: Front(app, parts.catalog, Upstream(other_url), gain)
    )


@pytest.mark.parametrize(
    ("path", "model", "ours"),
    [
        ("/api/generate", "fake", True),
        ("/v1/completions", "fake", True),
        ("/v1/completions", "llama", True),
        ("/v1/completions", "llama:latest", True),
        ("/v1/completions", "plain", False),
        ("/v1/completions", "unknown", False),
        ("/v1/embeddings", "fake", True),
        ("/v1/embeddings", "llama", False),
    ],
)
def test_a_model_is_ours_if_it_gains_or_the_other_host_lacks_it(
    client: httpx.Client, other: Other, scheduler: FakeScheduler, path: str, model: str, ours: bool
) -> None:
    body = {"model": model, "prompt": "hi", "input": "hi", "stream": False}
    answer = client.post(path, json=body)
    assert (answer.status_code == 200) == ours
    assert bool(scheduler.leases) == ours
    assert bool(other.seen) != ours
    if not ours:
        assert json.loads(other.seen[0][3]) == body


@pytest.mark.parametrize("body", [b"", b"no json", b"[1]", b'{"model": 3}', b"\xff\x00"])
def test_what_names_no_model_passes_as_it_is(
    client: httpx.Client, other: Other, body: bytes
) -> None:
    answer = client.post("/api/generate", content=body)
    assert answer.status_code == 418
    assert other.seen[0][3] == body


def test_a_request_passes_as_it_is(client: httpx.Client, other: Other, other_url: str) -> None:
    headers = [
        ("X-Mine", "1"),
        ("X-Mine", "2"),
        ("Authorization", "Bearer k"),
        ("Accept-Encoding", "br"),
        ("Connection", "x-gone"),
        ("X-Gone", "1"),
        ("TE", "trailers"),
        ("User-Agent", "me"),
        ("Accept", "*/*"),
        ("Content-Type", "application/json"),
    ]
    answer = client.put("/some/%2Fpath%20x?a=%20b&a=2", headers=headers, content=b"body")
    method, target, got, body = other.seen[0]
    assert (method, target, body) == ("PUT", "/some/%2Fpath%20x?a=%20b&a=2", b"body")
    host = urlsplit(other_url).netloc
    assert sorted(got) == sorted(
        [
            ("host", host),
            ("x-mine", "1"),
            ("x-mine", "2"),
            ("authorization", "Bearer k"),
            ("accept-encoding", "br"),
            ("user-agent", "me"),
            ("accept", "*/*"),
            ("content-type", "application/json"),
            ("content-length", "4"),
        ]
    )
    assert answer.status_code == 418
    assert answer.headers["x-theirs"] == "yes"
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert answer.headers["content-length"] == str(len(answer.content))


def test_what_is_packed_stays_packed(client: httpx.Client, other: Other) -> None:
    with client.stream("GET", "/packed") as answer:
        raw = b"".join(answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    assert raw == PACKED
    assert not any(name == "content-length" for name, _ in other.seen[0][2])


def test_head_passes(client: httpx.Client, other: Other) -> None:
    assert client.head("/api/version").status_code == 418
    assert other.seen[0][0] == "HEAD"


def test_an_upload_passes_piece_by_piece(url: str, other: Other) -> None:
    """The other host has the first piece before the last one is sent, and a piece is kept by
    nobody: far more than any buffer passes while the end is still to come."""
    parts = urlsplit(url)
    piece = bytes(1 << 20)
    n = 64
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as sock:
        head = f"POST /api/blobs/sha256-x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {n << 20}"
        sock.sendall(head.encode() + b"\r\n\r\n")
        for _ in range(n - 1):
            sock.sendall(piece)
        _until(lambda: other.arrived == (n - 1) << 20)
        sock.sendall(piece)
        assert sock.recv(100).startswith(b"HTTP/1.1 201")
    assert other.arrived == n << 20


def test_an_upload_that_stops_is_seen_by_the_other_host(url: str, other: Other) -> None:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as sock:
        head = (
            b"POST /api/blobs/sha256-x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9999\r\n\r\n"
        )
        sock.sendall(head + bytes(100))
        _until(lambda: other.arrived == 100)
    _until(lambda: other.gone == 1)


def test_a_stream_passes_as_it_comes_and_ends_when_the_client_goes(
    client: httpx.Client, other: Other
) -> None:
    body = {"model": "plain", "messages": HI}
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert next(answer.iter_raw()) == b"data: 0\n\n"
    _until(lambda: other.gone == 1)
    other.go_on.set()
    whole = client.post("/v1/chat/completions", json=body).text
    assert whole == "".join(f"data: {i}\n\n" for i in range(1000))


def test_lists_have_both(client: httpx.Client, other: Other) -> None:
    tags = client.get("/api/tags").json()
    assert tags["more"] == 1
    assert [m["name"] for m in tags["models"]] == ["llama:latest", "plain:latest", "fake:latest"]
    assert [m.get("theirs", False) for m in tags["models"]] == [True, True, False]
    # the other host has no such list: ours
    listed = client.get("/v1/models").json()["data"]
    assert {m["id"] for m in listed} == {"fake:latest", "llama:latest", "plain:latest"}


def test_management_is_the_other_hosts_but_for_what_only_we_have(
    client: httpx.Client, other: Other
) -> None:
    assert client.post("/api/show", json={"name": "llama"}).status_code == 418
    assert client.request("DELETE", "/api/delete", json={"model": "plain"}).status_code == 418
    assert client.post("/api/pull", json={"model": "fake"}).status_code == 418
    assert client.post("/api/create", json={"model": "fake"}).status_code == 418
    assert len(other.seen) == 4
    assert client.get("/v1/models/fake").status_code == 200
    assert client.get("/v1/models/unknown").status_code == 418


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/api/pull", lambda a: a["error"]),
        ("/v1/completions", lambda a: a["error"]["message"]),
        ("/v1/messages", lambda a: a["error"]["message"]),
    ],
)
def test_another_host_that_is_down(
    parts: Parts, fake_engine: FakeEngine, path: str, error: Any
) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        there = f"http://127.0.0.1:{closed.getsockname()[1]}"

        def front(app: Any, parts: Parts) -> Any:
            return Front(app, parts.catalog, Upstream(there), lambda model: True)

        with listening(create_app(replace(parts, front=front))) as url:
            answer = httpx.post(url + path, json={"model": "unknown"}, trust_env=False)
            assert answer.status_code == 502
            assert there in error(answer.json())
            # ours go on
            listed = httpx.get(url + "/api/tags", trust_env=False).json()["models"]
            assert len(listed) == 3
            body = {"model": "llama", "prompt": "hi"}
            assert (
                httpx.post(url + "/v1/completions", json=body, trust_env=False).status_code == 200
            )


def test_a_body_that_is_too_large_is_refused(parts: Parts) -> None:
    small = replace(parts, settings=replace(parts.settings, body_limit=1000))

    def chunks() -> Iterator[bytes]:
        for _ in range(5):
            yield bytes(500)

    with listening(create_app(small)) as url:
        answer = httpx.post(url + "/api/chat", content=chunks(), trust_env=False)
        assert answer.status_code == 413
        assert "error" in answer.json()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("127.0.0.1:11435", "http://127.0.0.1:11435"),
        ("http://box:1234/", "http://box:1234"),
        ("https://box/ollama", "https://box/ollama"),
    ],
)
def test_addresses_as_users_write_them(said: str, meant: str) -> None:
    assert base_url(said) == meant


@pytest.mark.parametrize("said", ["", "ftp://box", "http://", "http://[::1", "http://a:b"])
def test_addresses_that_are_none(said: str) -> None:
    with pytest.raises(UserError, match="11435"):
        base_url(said)


def test_nobody_stands_in_front_of_himself() -> None:
    for front in ("http://127.0.0.1:11434", "http://localhost:11434"):
        with pytest.raises(UserError, match="another port"):
            not_ourselves(front, "http://127.0.0.1:11434")
    not_ourselves("http://127.0.0.1:11435", "http://127.0.0.1:11434")
    not_ourselves("http://box:11434", "http://127.0.0.1:11434")


def _until(condition: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)

"""Clients that connect and say nothing, and how many there can be."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator

import httpx
import pytest
from serve_engine import listening

from srhpm_plugin.serve import connections
from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.run import config_of


@pytest.fixture
def real(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """Our application, served as ``serve`` does it; clients have a fifth of a second."""
    monkeypatch.setattr(connections, "_PATIENCE_S", 0.2)
    app = create_app(parts)
    with listening(app, config_of(app)) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


@pytest.fixture
def patient(parts: Parts) -> Iterator[tuple[str, int]]:
    """The same with as much time as users have."""
    app = create_app(parts)
    with listening(app, config_of(app)) as url:
        yield "127.0.0.1", int(url.rpartition(":")[2])


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_who_says_nothing_is_not_waited_for(real: tuple[str, int], said: bytes) -> None:
    with socket.create_connection(real, timeout=10) as silent:
        silent.sendall(said)
        with contextlib.suppress(ConnectionResetError):
            assert silent.recv(100) == b""


def test_who_has_asked_may_take_time(real: tuple[str, int]) -> None:
    body = b'{"model":"fake","prompt":"hi","stream":false}'
    head = b"POST /api/generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with socket.create_connection(real, timeout=10) as slow:
        slow.sendall(head % len(body) + body[:5])
        time.sleep(0.5)  # longer than a silent one may stay
        slow.sendall(body[5:])
        assert slow.recv(100).startswith(b"HTTP/1.1 200 OK")


def trickle(sock: socket.socket, said: bytes, seconds: float = 5.0) -> bytes:
    """Says a byte now and then until the other side has had enough; what it answered."""
    end = time.monotonic() + seconds
    sock.settimeout(0.05)
    heard = b""
    for i in range(len(said)):
        try:
            sock.sendall(said[i : i + 1])
            piece = sock.recv(1000)
        except TimeoutError:
            assert time.monotonic() < end, "it is still waited for"
            continue
        except OSError:
            return heard
        if not piece:
            return heard
        heard += piece
    raise AssertionError("all of it was heard")


HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@pytest.mark.parametrize("said", [HEAD + b"a" * 1000, b"\r\n" * 1000])
def test_who_talks_without_end_is_not_waited_for(real: tuple[str, int], said: bytes) -> None:
    with socket.create_connection(real, timeout=10) as slow:
        trickle(slow, said)


@pytest.mark.parametrize("said", [HEAD + b"a" * 1000, b"\r\n" * 1000])
def test_nor_in_a_further_request(real: tuple[str, int], said: bytes) -> None:
    with socket.create_connection(real, timeout=10) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        heard = b""
        while not heard.endswith(b"Ollama is running"):
            heard += slow.recv(1000)
        time.sleep(0.5)  # a connection that rests is kept: its next request is waited for longer
        assert trickle(slow, said) == b""


def test_a_connection_serves_many_requests(real: tuple[str, int]) -> None:
    one = b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(real, timeout=10) as sock:
        for count in (1, 1, 3):  # the last three at once
            sock.sendall(one * count)
            heard = b""
            while heard.count(b'"srhpm"') < count:
                heard += sock.recv(10_000)
            assert heard.count(b"HTTP/1.1 200 OK\r\n") == count


def test_headers_have_a_limit(real: tuple[str, int]) -> None:
    with httpx.Client(base_url="http://{}:{}".format(*real), trust_env=False) as client:
        assert client.get("/", headers={"X": "a" * 1000}).status_code == 200
        with contextlib.suppress(httpx.TransportError):  # told, or cut off while it still writes
            assert client.get("/", headers={"X": "a" * 200_000}).status_code == 400


CHUNKED = b"POST /api/show HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", b"a" * 10_000),  # one header
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"X: a\r\n" * 1_000),  # many
        (b"GET /", b"a" * 10_000),
        (CHUNKED + b"1\r\na\r\n0\r\nX: ", b"a" * 10_000),  # after a body
        (CHUNKED + b"1\r\na\r\n0\r\n", b"X: a\r\n" * 1_000),
    ],
)
def test_no_more_of_a_head_is_kept(patient: tuple[str, int], begun: bytes, more: bytes) -> None:
    """However it comes: it is not gathered for ever."""
    with socket.create_connection(patient, timeout=10) as sock, contextlib.suppress(OSError):
        sock.sendall(begun)
        for _ in range(1000):
            sock.sendall(more)
        raise AssertionError("all of it was taken")


def test_a_large_body_is_no_head(patient: tuple[str, int]) -> None:
    body = b'{"model":"fake","prompt":"' + b"a" * 300_000 + b'","stream":false}'
    piece = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:100_000], body[100_000:]))
    head = CHUNKED.replace(b"/api/show", b"/api/generate")
    with socket.create_connection(patient, timeout=10) as sock:
        sock.sendall(head + piece + b"0\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_head_and_body_come_together(real: tuple[str, int]) -> None:
    """One piece on the wire instead of two."""
    with socket.create_connection(real, timeout=10) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert sock.recv(10_000).endswith(b"Ollama is running")


def test_the_parser_is_the_one_with_the_limit(parts: Parts) -> None:
    config = config_of(create_app(parts))
    config.load()
    assert config.http_protocol_class is connections.Connection


def test_more_files_than_usual_may_be_open() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = min(256, before[1])
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
        connections.allow_many()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = hard == resource.RLIM_INFINITY
        assert soft == (connections._FILES if unlimited else min(connections._FILES, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connections.allow_many()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

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


def test_headers_have_a_limit(real: tuple[str, int]) -> None:
    with httpx.Client(base_url="http://{}:{}".format(*real), trust_env=False) as client:
        assert client.get("/", headers={"X": "a" * 1000}).status_code == 200
        with contextlib.suppress(httpx.TransportError):  # told, or cut off while it still writes
            assert client.get("/", headers={"X": "a" * 200_000}).status_code == 400


def test_the_parser_is_the_one_with_the_limit(parts: Parts) -> None:
    config = config_of(create_app(parts))
    config.load()
    assert config.http_protocol_class is connections.Connection  # also where httptools is installed


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

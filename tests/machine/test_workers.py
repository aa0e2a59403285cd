"""What RPC workers are asked, and what is said of those that do not answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.workers import parse_endpoints, read_workers


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A server with something beside it that would ask workers."""
    (tmp_path / "bench-rpc").write_text("")
    return tmp_path / "llama-server"


@pytest.fixture
def closed() -> Iterator[str]:
    """An endpoint at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # without listen()
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_endpoints() -> None:
    assert parse_endpoints("10.0.0.2:1, box.lan") == ("10.0.0.2:1", "box.lan:50052")


@pytest.mark.parametrize("text", ["", "a,", "a:0", "a:65536", "a:b", "-x", "a b", "http://a:1"])
def test_no_endpoints(text: str) -> None:
    with pytest.raises(UserError, match=r"it is no HOST:PORT; type e\.g\. --rpc"):
        parse_endpoints(text)


def test_named_twice() -> None:
    with pytest.raises(UserError, match="box:50052 is named twice"):
        parse_endpoints("box,box:50052")


def test_nobody_listens(program: Path, closed: str) -> None:
    with pytest.raises(UserError, match=f"worker {closed} does not answer: .*ggml-rpc-server"):
        read_workers([closed], program)


def test_a_server_built_without(tmp_path: Path, closed: str) -> None:
    with pytest.raises(UserError, match="native build"):
        read_workers([closed], tmp_path / "llama-server")
    with pytest.raises(UserError, match="native build"):
        read_workers([closed], None)


def test_none_are_asked_for_nothing() -> None:
    assert read_workers([], None) == ()

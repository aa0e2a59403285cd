"""Asking a model's server: answers whole and in pieces, and what it looks like when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from srhpm_plugin.serve import wire as wiring
from srhpm_plugin.serve.wire import ServerGoneError, Wire

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def exchange(serve: Serve, ask: Callable[[Wire], Awaitable[Any]], **more: Any) -> Any:
    """What ``ask`` makes of a server that does ``serve`` with each connection."""

    async def run() -> Any:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await serve(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(served, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await asyncio.wait_for(ask(Wire("127.0.0.1", port, **more)), 20)

    return asyncio.run(run())


def saying(*pieces: bytes, heard: list[bytes] | None = None) -> Serve:
    """Reads a request and says the pieces, each on its own."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next((int(x[16:]) for x in head.split(b"\r\n") if x[:15] == b"Content-Length:"), 0)
        said = head + await reader.readexactly(length)
        if heard is not None:
            heard.append(said)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)

    return serve


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; x=y\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def test_a_whole_answer() -> None:
    heard: list[bytes] = []
    serve = saying(b"HTTP/1.1 400 Bad\r\nContent-", b"Length: 5\r\n\r\nhe", b"llo", heard=heard)
    assert exchange(serve, lambda w: w.ask("/a", b"{}"), key="secret") == (400, b"hello")
    assert heard[0].startswith(b"POST /a HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nAuthorization: Bearer secret\r\n" in heard[0]
    assert heard[0].endswith(b"\r\n\r\n{}")


def test_a_stream_comes_in_pieces() -> None:
    async def ask(wire: Wire) -> list[bytes]:
        async with wire.asking("/a") as answer:
            assert (answer.status, answer.kind) == (200, "text/event-stream")
            return [part async for part in _parts(answer)]

    serve = saying(CHUNKED, b"3\r\none\r\n", b"3\r\nt", b"wo\r\n5\r\nthree\r\n0\r\n\r\n")
    parts = exchange(serve, ask)
    assert b"".join(parts) == b"onetwothree"
    assert parts[0] == b"one"


async def _parts(answer: wiring.Answer) -> Any:
    while part := await answer.part():
        yield part


@pytest.mark.parametrize(
    "said",
    [
        (),
        (b"HTTP/1.1 200",),
        (CHUNKED,),
        (CHUNKED, b"3\r\none\r\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",),
        (b"what is this?\r\n\r\n",),
        (CHUNKED, b"zz\r\n"),
    ],
)
def test_an_answer_that_breaks_off_is_an_error(said: tuple[bytes, ...]) -> None:
    async def why() -> str:
        return "it was killed"

    with pytest.raises(ServerGoneError, match="it was killed"):
        exchange(saying(*said), lambda w: w.ask("/a", b"{}"), why=why)


def test_what_came_before_the_end_is_read_first() -> None:
    async def ask(wire: Wire) -> bytes:
        async with wire.asking("/a") as answer:
            await asyncio.sleep(0.1)  # the server is gone by now
            first = await answer.part()
            with pytest.raises(ServerGoneError, match="closed"):
                await answer.part()
            return first

    assert exchange(saying(CHUNKED, b"3\r\none\r\n"), ask) == b"one"


def test_nobody_is_there() -> None:
    async def ask(wire: Wire) -> Any:
        return await Wire("127.0.0.1", 1).ask("/a")

    with pytest.raises(ServerGoneError):
        exchange(saying(), ask)


def test_leaving_closes_the_connection() -> None:
    closed = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + b"3\r\none\r\n")
        closed.append(await reader.read())

    async def ask(wire: Wire) -> None:
        async with wire.asking("/a") as answer:
            assert await answer.part() == b"one"
        while not closed:
            await asyncio.sleep(0.01)

    exchange(serve, ask)
    assert closed == [b""]


def test_a_reader_that_is_slow_makes_the_server_wait() -> None:
    """What nobody takes does not pile up here."""
    piece = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    sent = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED)
        for _ in range(1024):  # 64 MiB
            writer.write(piece)
            await writer.drain()
            sent.append(piece)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def ask(wire: Wire) -> int:
        async with wire.asking("/a") as answer:
            await asyncio.sleep(0.5)
            assert len(sent) < 512
            return len(await answer.read())

    assert exchange(serve, ask) == 1024 * 0x10000

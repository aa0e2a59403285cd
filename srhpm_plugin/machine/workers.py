"""RPC workers: other machines that run llama.cpp's ``ggml-rpc-server``, as GPUs with a slow link.

Measured each time a plan is made, in about a second for each (``bench-rpc``): what they have free
and how they are reached changes. RPC has no authentication and no encryption: whoever reaches a
worker's port can use it, and what they may do there is not bounded (docs/scale.md).
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .types import Gpu, Link

FROM_WORKER = "bench-rpc"
PROGRAM = "bench-rpc"
PORT = 50052
"""The worker's own default."""

CONNECT_SECONDS = 3.0
MEASURE_SECONDS = 60.0
_ENDPOINT = re.compile(r"(?P<host>[A-Za-z0-9][A-Za-z0-9._-]*)(:(?P<port>\d{1,5}))?")
_LEAVE_OUT = "leave it out of --rpc"


def parse_endpoints(text: str) -> tuple[str, ...]:
    """``HOST:PORT,HOST`` as complete endpoints; without a port the worker's default.

    Raises:
        UserError: something is no endpoint, or named twice.
    """
    found: list[str] = []
    for part in (p.strip() for p in text.split(",")):
        match = _ENDPOINT.fullmatch(part)
        port = int(match["port"] or PORT) if match else 0
        if not match or not 0 < port < 65536:
            raise UserError(
                f"no RPC worker {part!r}", "it is no HOST:PORT", "type e.g. --rpc 10.0.0.2:50052"
            )
        endpoint = f"{match['host']}:{port}"
        if endpoint in found:
            raise UserError(
                f"the RPC worker {endpoint} is named twice", "it has one memory", _LEAVE_OUT
            )
        found.append(endpoint)
    return tuple(found)


def read_workers(endpoints: Sequence[str], server: Path | None) -> tuple[Gpu, ...]:
    """The devices behind ``endpoints``, under the names that ``server --rpc`` gives them.

    Raises:
        UserError: there is no program to ask with, a worker does not answer, or it is of another
            version of the protocol.
    """
    if not endpoints:
        return ()
    program = _program(server)
    for endpoint in endpoints:
        _knock(endpoint)
    env = {**os.environ, "GGML_NO_BACKTRACE": "1"}
    try:
        done = subprocess.run(
            [str(program), *endpoints],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MEASURE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        where = ", ".join(endpoints)
        why = f"no answer within {MEASURE_SECONDS:.0f} s: the link is slow, or a worker is busy"
        raise UserError(f"cannot measure the RPC workers {where}", why, _LEAVE_OUT) from None
    except OSError as error:
        raise UserError(
            "cannot measure RPC workers", f"{program}: {error}", "type: srhpm-plugin native build"
        ) from None
    if done.returncode != 0:
        raise UserError(
            f"cannot use the RPC workers {', '.join(endpoints)}",
            _reason(done.stderr),
            "start ggml-rpc-server there from the same build as here, or leave them out of --rpc",
        )
    return tuple(_gpu(row) for row in json.loads(done.stdout))


def _program(server: Path | None) -> Path:
    found = server.with_name(PROGRAM + server.suffix) if server else None
    if found is None or not found.is_file():
        raise UserError(
            "cannot use RPC workers",
            "this server was built without what measures them",
            "type: srhpm-plugin native build",
        )
    return found


def _knock(endpoint: str) -> None:
    """The server's client aborts where nobody listens; this says so in a line."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        why = "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise UserError(
            f"the RPC worker {endpoint} does not answer",
            why,
            f"start it there (ggml-rpc-server --host {host} --port {port}), or {_LEAVE_OUT}",
        ) from None


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = [
        line for line in lines if "bench-rpc:" in line or "mismatch" in line or "ggml-rpc" in line
    ]
    return (said or lines or ["it ended without a word"])[0][:200]


def _gpu(row: dict[str, float | str]) -> Gpu:
    link = Link(
        endpoint=str(row["endpoint"]),
        round_trip_ms=float(row["round_trip_ms"]),
        up_bytes_s=float(row["up_bytes_s"]),
        down_bytes_s=float(row["down_bytes_s"]),
        read_bytes_s=float(row["read_bytes_s"]),
    )
    total, free = int(row["total"]), int(row["free"])
    name = str(row["name"])
    return Gpu(name, f"RPC worker {link.endpoint}", total, min(free, total), FROM_WORKER, link)

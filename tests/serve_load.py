"""Many clients over few slots, some hanging up, servers killed now and then: what is left behind?

As a program, for as long as one likes:

    python tests/serve_load.py MODEL --seconds 300
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)


@dataclass
class Sample:
    """The host's process and its children, at rest.

    Attributes:
        rss: its resident bytes.
        handles: open file descriptors (handles on Windows).
        threads: of it.
        servers: model servers below it.
    """

    rss: int
    handles: int
    threads: int
    servers: int


@dataclass
class Outcome:
    """Attributes:
    ended: requests by how they ended: ``done``, ``hung up`` (by us), ``busy`` (503 with
        Retry-After), ``error`` (said in the API's form), ``broken`` (anything else).
    broken: what those were.
    kills: servers killed.
    before, after: at rest.
    active_after: slots taken when all clients were gone.
    freed_s: longest time until a slot was free after its client hung up, at the end.
    tokens: pieces received.
    """

    seconds: float
    ended: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    kills: int = 0
    before: Sample | None = None
    after: Sample | None = None
    active_after: int = -1
    freed_s: float = -1.0
    tokens: int = 0


@contextlib.contextmanager
def serving(
    model: Path, home: Path, env: dict[str, str], *flags: str
) -> Iterator[tuple[str, psutil.Process]]:
    """`srhpm-plugin serve` over one model: its URL and its process."""
    folder = home / "models"
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / "small.gguf"
    if not place.exists():
        try:
            place.symlink_to(model.resolve())
        except OSError:
            place.write_bytes(model.read_bytes())
    argv = [sys.executable, "-m", "srhpm_plugin", "serve", "--json", "--port", "0", *flags]
    argv[argv.index("--port") + 1] = str(free_port())
    told = {"SRHPM_HOME": str(home), "SRHPM_HOSTED": "off", "SRHPM_MODELS": str(folder)}
    process = subprocess.Popen(
        argv, env={**os.environ, **told, **env}, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield ready["url"], psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM if sys.platform == "win32" else signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise


def free_port() -> int:
    from srhpm_plugin.launch.ports import free_port as free

    return free()


def servers(host: psutil.Process) -> list[psutil.Process]:
    """The model servers that live."""
    alive = []
    for child in host.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if child.status() != psutil.STATUS_ZOMBIE:
                alive.append(child)
    return alive


def sample(host: psutil.Process) -> Sample:
    handles = host.num_handles() if sys.platform == "win32" else host.num_fds()
    return Sample(host.memory_info().rss, handles, host.num_threads(), len(servers(host)))


class Clients:
    """They ask until the time is over."""

    def __init__(self, url: str, seconds: float, seed: int) -> None:
        self.outcome = Outcome(seconds)
        self._url = url
        self._end = time.monotonic() + seconds
        self._random = random.Random(seed)

    async def run(self, count: int) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        async with httpx.AsyncClient(
            base_url=self._url, timeout=120.0, limits=limits, trust_env=False
        ) as http:
            await asyncio.gather(*(self._client(http) for _ in range(count)))

    async def _client(self, http: httpx.AsyncClient) -> None:
        while time.monotonic() < self._end:
            route = self._random.choice(("/api/chat", "/v1/chat/completions", "/api/generate"))
            try:
                ended = await self._ask(http, route)
            except (httpx.HTTPError, ValueError, KeyError) as error:
                ended = "broken"
                self.outcome.broken.append(f"{route}: {type(error).__name__}: {error}"[:300])
            self.outcome.ended[ended] += 1
            if ended in ("busy", "error"):
                await asyncio.sleep(self._random.uniform(0.1, 1.0))

    async def _ask(self, http: httpx.AsyncClient, route: str) -> str:
        n = self._random.randint(4, 24)
        words = f"Tell me a story about number {self._random.randint(0, 9999)}."
        body: dict[str, Any] = {"model": "small", "stream": self._random.random() < 0.8}
        if route == "/api/generate":
            body["prompt"] = words
        else:
            body["messages"] = [{"role": "user", "content": words}]
        if route.startswith("/api"):
            body["options"] = {"num_predict": n}
        else:
            body["max_tokens"] = n
        patience = self._random.randint(0, 20) if self._random.random() < 0.3 else None
        if patience is not None and self._random.random() < 0.3:
            # Gone before a word came, wherever the request was.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(http.post(route, json=body), patience / 20)
            return "hung up"
        async with http.stream("POST", route, json=body) as answer:
            if answer.status_code == 503 and int(answer.headers["retry-after"]) > 0:
                json.loads(await answer.aread())["error"]
                return "busy"
            if answer.status_code != 200:
                json.loads(await answer.aread())["error"]
                return "error"
            if not body["stream"]:
                said = json.loads(await answer.aread())
                self.outcome.tokens += n
                return "done" if said.get("done") or said["choices"] else "broken"
            async for message in _messages(answer, route):
                self.outcome.tokens += 1
                if message is None or message.get("done"):
                    return "done"
                if "error" in message:
                    return "error"
                if patience is not None:
                    patience -= 1
                    if patience < 0:
                        return "hung up"
        self.outcome.broken.append(f"{route}: the stream ended without an end")
        return "broken"


async def _messages(answer: httpx.Response, route: str) -> AsyncIterator[dict[str, Any] | None]:
    """Of a stream; ``None`` for OpenAI's last one."""
    async for line in answer.aiter_lines():
        if not line:
            continue
        if route.startswith("/api"):
            yield json.loads(line)
        elif line == "data: [DONE]":
            yield None
        elif line.startswith("data: "):
            yield json.loads(line[6:])


async def _killer(host: psutil.Process, every: float, outcome: Outcome) -> None:
    while True:
        await asyncio.sleep(every)
        for server in servers(host)[:1]:
            with contextlib.suppress(psutil.Error, OSError):
                os.kill(server.pid, KILL)
                outcome.kills += 1


async def _active(http: httpx.AsyncClient) -> int:
    said = (await http.get("/srhpm.json")).json()
    return sum(one["active"] for one in said["loaded"])


async def _freed(http: httpx.AsyncClient) -> float:
    """Seconds until the slot is free after a client has hung up in the middle of an answer."""
    body = {"model": "small", "prompt": "Count for ever: 1 2 3", "options": {"num_predict": 400}}
    async with http.stream("POST", "/api/generate", json=body) as answer:
        await anext(answer.aiter_lines())
    began = time.monotonic()
    while await _active(http):
        await asyncio.sleep(0.01)
        if time.monotonic() - began > 20:
            break
    return time.monotonic() - began


async def load(
    url: str,
    host: psutil.Process,
    *,
    seconds: float,
    clients: int,
    kill_every: float,
    seed: int = 1,
) -> Outcome:
    """Runs the clients against a host that serves a model called ``small``."""
    async with httpx.AsyncClient(base_url=url, timeout=120.0, trust_env=False) as http:
        # The first tenth warms up: libraries are loaded, pools filled.
        warm = Clients(url, max(seconds / 10, 2.0), seed)
        await warm.run(clients)
        await _rest(http)
        crowd = Clients(url, seconds, seed + 1)
        outcome = crowd.outcome
        outcome.before = sample(host)
        killer = asyncio.create_task(_killer(host, kill_every, outcome))
        await crowd.run(clients)
        killer.cancel()
        await _rest(http)
        outcome.active_after = await _active(http)
        outcome.freed_s = max([await _freed(http) for _ in range(3)])
        await _rest(http)
        outcome.after = sample(host)
    return outcome


async def _rest(http: httpx.AsyncClient) -> None:
    """Until a request is answered and nothing is under way."""
    body = {"model": "small", "prompt": "hi", "stream": False, "options": {"num_predict": 1}}
    for _ in range(60):
        if (await http.post("/api/generate", json=body)).status_code == 200:
            break
        await asyncio.sleep(1)
    for _ in range(200):
        if not await _active(http):
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--home", type=Path, default=os.environ.get("SRHPM_HOME"))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--kill-every", type=float, default=30)
    parser.add_argument("--queue", type=int, default=48)
    options = parser.parse_args()
    flags = ("--parallel", str(options.slots), "--ctx", "512", "--draft", "none")
    env = {"OLLAMA_MAX_QUEUE": str(options.queue)}
    with serving(options.model, options.home, env, *flags) as (url, host):
        work = load(
            url,
            host,
            seconds=options.seconds,
            clients=options.clients,
            kill_every=options.kill_every,
        )
        outcome = asyncio.run(work)
        below = servers(host)
    _, alive = psutil.wait_procs(below, timeout=5)
    said = {**vars(outcome), "left_behind": len(alive)}
    for name in ("before", "after"):
        said[name] = asdict(said[name])
    print(json.dumps(said, indent=2))


if __name__ == "__main__":
    main()

"""What `srhpm-plugin serve` costs against asking the same llama-server process directly, in pairs.

python tests/serve_overhead.py MODEL
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
from serve_load import servers, serving

PROMPT = "Write a long story about a lighthouse."


@dataclass
class Way:
    """A way to ask.

    Attributes:
        name: for the report.
        http: to whom.
        route: where.
        body: what, less the number of tokens.
        limit: the body with that number.
    """

    name: str
    http: httpx.Client
    route: str
    limit: Callable[[int], dict[str, Any]]

    def ask(self, tokens: int) -> tuple[float, float]:
        """Milliseconds to the first byte of the answer's body, and to its end."""
        body = json.dumps(self.limit(tokens)).encode()
        headers = {"Content-Type": "application/json"}
        began = time.perf_counter()
        with self.http.stream("POST", self.route, content=body, headers=headers) as answer:
            parts = answer.iter_raw()
            next(parts)
            first = time.perf_counter()
            for _ in parts:
                pass
            end = time.perf_counter()
            assert answer.status_code == 200
        return (first - began) * 1000, (end - began) * 1000


def ways(url: str, host: psutil.Process) -> list[Way]:
    """Directly, and through each of our APIs."""
    (server,) = servers(host)
    port = next(c.laddr.port for c in server.net_connections() if c.status == psutil.CONN_LISTEN)
    key = {"Authorization": f"Bearer {server.environ()['LLAMA_API_KEY']}"}
    # llama-server closes a connection after each stream without having said so.
    limits = httpx.Limits(max_keepalive_connections=0)
    there = f"http://127.0.0.1:{port}"
    direct = httpx.Client(base_url=there, headers=key, timeout=60, trust_env=False, limits=limits)
    ours = httpx.Client(base_url=url, timeout=60, trust_env=False)
    messages = [{"role": "user", "content": PROMPT}]
    chat = {"model": "small", "messages": messages, "stream": True}

    def openai(n: int) -> dict[str, Any]:
        return {**chat, "max_tokens": n, "temperature": 0}

    def ollama(n: int) -> dict[str, Any]:
        return {**chat, "options": {"num_predict": n, "temperature": 0}}

    return [
        Way("direct", direct, "/v1/chat/completions", openai),
        Way("/v1/chat/completions", ours, "/v1/chat/completions", openai),
        Way("/api/chat", ours, "/api/chat", ollama),
    ]


def measure(
    found: list[Way], host: psutil.Process, rounds: int, tokens: int
) -> list[dict[str, Any]]:
    """Rounds in random order; differences and ratios are taken within each. ``cpu_ms`` is what our
    own process computes for an answer, which other work on the machine does not change much."""
    firsts: dict[str, list[float]] = {way.name: [] for way in found}
    ends: dict[str, list[float]] = {way.name: [] for way in found}
    cpu: dict[str, float] = dict.fromkeys(firsts, 0.0)
    for way in found:
        for _ in range(5):
            way.ask(2)
    for _ in range(rounds):
        for way in random.sample(found, len(found)):
            before = sum(host.cpu_times()[:2])
            first, end = way.ask(tokens)
            cpu[way.name] += sum(host.cpu_times()[:2]) - before
            firsts[way.name].append(first)
            ends[way.name].append(end)
    rows = []
    for way in found:
        added = [a - b for a, b in zip(firsts[way.name], firsts["direct"], strict=True)]
        ratio = [a / b for a, b in zip(ends[way.name], ends["direct"], strict=True)]
        rows.append(
            {
                "way": way.name,
                "tokens": tokens,
                "first_byte_ms": statistics.median(firsts[way.name]),
                "added_ms": statistics.median(added),
                "added_ms_quartiles": statistics.quantiles(added, n=4)[::2],
                "whole_ms": statistics.median(ends[way.name]),
                "whole_ratio": statistics.median(ratio),
                "whole_ratio_quartiles": statistics.quantiles(ratio, n=4)[::2],
                "cpu_ms": cpu[way.name] / rounds * 1000,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--home", type=Path, default=os.environ.get("SRHPM_HOME"))
    parser.add_argument("--rounds", type=int, default=60, help="of the first byte")
    parser.add_argument("--long-rounds", type=int, default=12, help="of whole answers")
    parser.add_argument("--tokens", type=int, default=96, help="of a whole answer")
    parser.add_argument(
        "--apart", action="store_true", help="keep one core for us and the client (Linux, Windows)"
    )
    options = parser.parse_args()
    flags = ("--ctx", "2048", "--draft", "none")
    cores = psutil.Process().cpu_affinity() if options.apart else []
    if options.apart:
        psutil.Process().cpu_affinity(cores[:-1])  # what is started now stays there
    with serving(options.model, options.home, {}, *flags) as (url, host):
        body = {"model": "small", "prompt": "hi", "stream": False, "options": {"num_predict": 1}}
        httpx.post(url + "/api/generate", json=body, timeout=120, trust_env=False)
        if options.apart:
            for process in (psutil.Process(), host):
                process.cpu_affinity(cores[-1:])
        found = ways(url, host)
        rows = measure(found, host, options.rounds, 2)
        rows += measure(found, host, options.long_rounds, options.tokens)
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()

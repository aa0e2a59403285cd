"""64 clients over 4 slots on the real server, for some seconds; ``tests/serve_load.py`` does it for
as long as one likes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest
from serve_load import load, servers, serving

MIB = 1 << 20


@pytest.mark.server
def test_nothing_is_left_behind(smollm2: Path, server_dir: Path, tmp_path: Path) -> None:
    env = {"OLLAMA_MAX_QUEUE": "48", "SRHPM_SERVER": str(server_dir / "llama-server")}
    flags = ("--parallel", "4", "--ctx", "512", "--draft", "none")
    with serving(smollm2, tmp_path, env, *flags) as (url, host):
        outcome = asyncio.run(load(url, host, seconds=10, clients=64, kill_every=4))
        below = servers(host)
    assert not psutil.wait_procs(below, timeout=5)[1], "model servers are left"
    ended = outcome.ended
    assert outcome.broken == []
    assert ended["broken"] == 0
    assert ended["done"] > 20 and ended["hung up"] > 5 and ended["busy"] > 0, ended
    assert outcome.kills >= 2 and ended["error"] > 0
    assert outcome.active_after == 0
    assert outcome.freed_s < 2.0  # a second is what we promise; this machine may be busy
    before, after = outcome.before, outcome.after
    assert before is not None and after is not None
    assert after.servers == before.servers == 1
    assert after.handles <= before.handles + 4
    assert after.threads <= before.threads + 4
    assert after.rss < before.rss + 64 * MIB

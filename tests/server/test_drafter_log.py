"""Hosts add up a model's memory from the log, the last line of a name counting: a drafter's lines
must not take the place of its target's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ollama_emulator import BUFFER

Sizes = dict[tuple[str, str, str], float]


def sizes(start: Any, *args: str | Path) -> Sizes:
    with start("-lv", "4", "--no-log-prefix", *args) as api:
        pass
    log = api.log.read_text("utf-8", "replace")
    return {(name, device, kind): float(mib) for name, device, kind, mib in BUFFER.findall(log)}


def test_target_and_drafter_add_up(start: Any, draft_args: list[str | Path]) -> None:
    alone, both = sizes(start), sizes(start, *draft_args)
    drafter = {key: mib for key, mib in both.items() if key[0].startswith("drafter_")}
    weights = {key: mib for key, mib in alone.items() if key[2] in ("model", "KV")}
    assert weights
    assert weights.items() <= both.items()
    assert {kind for _, _, kind in drafter} >= {"model", "KV", "compute"}
    assert len(both) == len(alone) + len(drafter)

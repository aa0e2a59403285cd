"""Threads: one per usable performance core."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner.threads import choose_threads


@pytest.mark.parametrize(
    ("cpu", "asked", "threads", "words"),
    [
        ({"physical": 4, "logical": 8}, None, 4, "one per performance core"),
        # llama.cpp#842 (E-cores), ramalama#934 (4 of 20 cores used)
        ({"physical": 20, "performance": 8, "logical": 28}, None, 8, "8 of 20"),
        ({"physical": 16, "usable": 6}, None, 6, "affinity leaves 6 of 16"),
        ({"physical": 16, "usable": 2, "quota": 2.5}, None, 2, "limit of 2.5 CPUs"),
        (
            {"physical": 20, "performance": 8, "usable": 10, "usable_performance": 4},
            None,
            4,
            "affinity leaves 10 of 20 cores, 4 of them performance cores",
        ),
        (
            {"physical": 20, "performance": 8, "usable": 6, "usable_performance": 6},
            None,
            6,
            "affinity leaves 6 of 20 cores",
        ),
        ({"physical": 4, "logical": 8}, 3, 3, "as asked"),
        ({"physical": 4, "logical": 8}, 12, 12, "more than the 8 hardware threads"),
    ],
)
def test_threads(
    cpu: dict[str, Any], asked: int | None, threads: int, words: str, machines: SimpleNamespace
) -> None:
    request = HostRequest(Path("model.gguf"), threads=asked)
    count, why = choose_threads(request, machines.make(16, **cpu))
    assert count == threads
    assert words in why

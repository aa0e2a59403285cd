"""Costs of a plan that nobody has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from srhpm_plugin.planner.cost.types import WIDEST, Costs


@pytest.fixture(scope="session")
def costed() -> Callable[..., Costs]:
    """``costed(**changes)``: a pass of 40 ms that grows by 2 ms a token, and a drafter of 4 ms."""

    def make(**changes: Any) -> Costs:
        given: dict[str, Any] = {
            "ctx": 256,
            "target": {m: 38.0 + 2.0 * m for m in range(1, WIDEST + 1)},
            "drafter": {m: 3.5 + 0.5 * m for m in range(1, WIDEST + 1)},
            "stock": 41.0,
            "step": 0.5,
            "drafted": 0.2,
            "draft": 0.3,
            "rebuild": 0.4,
            "again": False,
        }
        return Costs(**(given | changes))

    return make

"""What files of hosts are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_host import ToyHost

from srhpm_plugin.host import HostModel
from srhpm_plugin.planner import hosted


def test_drafters_are_called_after_their_models(
    toy: ToyHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted, "_called", {})
    large, small, heads = (Path(f"/s/sha256-{name}") for name in "abc")
    toy.listed = (
        HostModel("large:27b", large, drafter=heads),
        HostModel("large:27b-fast", large, drafter=small),
        HostModel("small:1b", small),
    )
    assert hosted.label(heads) == "sha256-c"
    hosted.hosted("toy")
    assert [hosted.label(path) for path in (large, small, heads)] == [
        "large:27b", "small:1b", "large:27b (drafter)",
    ]  # fmt: skip

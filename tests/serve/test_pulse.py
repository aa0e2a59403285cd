"""Tokens of the last seconds."""

from __future__ import annotations

import pytest

from srhpm_plugin.serve.pulse import Pulse


def test_tokens_per_second_over_the_last_seconds() -> None:
    now = 100.0
    pulse = Pulse(lambda: now)
    assert pulse.tok_s("a") is None
    for _ in range(30):
        pulse.beat("a")
        now += 0.1
    assert pulse.tok_s("a") == pytest.approx(29 / 3.0)
    pulse.beat("b", 4)
    assert pulse.tok_s("b") is None  # one moment is no speed
    for _ in range(100):
        pulse.beat("a", 2)
        now += 0.1
    assert pulse.tok_s("a") == pytest.approx(20, rel=0.05)
    now += 60
    assert pulse.tok_s("a") is None
    assert set(pulse.models()) == {"a", "b"}

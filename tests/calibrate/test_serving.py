"""What the server adds to its passes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.calibrate import shapes
from srhpm_plugin.calibrate.data import WIDTHS, Passes
from srhpm_plugin.calibrate.serving import DRAFTED, fit_serving

PASSES = Passes(dict.fromkeys(WIDTHS, 0.2), {m: 0.05 + 0.01 * m for m in WIDTHS}, 0.02)
SMALL, LARGE = shapes.SHALLOW.vocab / 1000, shapes.TALKER.vocab / 1000
COST = st.floats(0, 2)


def pass_ms(m: int) -> float:
    return 0.2 + shapes.SHALLOW.layers * (0.05 + 0.01 * m)


@given(step=COST, sample=st.floats(0, 0.1), draft=st.floats(0, 0.1))
def test_found_again(step: float, sample: float, draft: float) -> None:
    few = pass_ms(1) + step + sample * SMALL
    many = pass_ms(1) + step + sample * LARGE
    verify = pass_ms(1 + DRAFTED) + step + (1 + DRAFTED) * sample * LARGE
    drafting = (DRAFTED - 1) * pass_ms(1) + pass_ms(2) + DRAFTED * draft * LARGE
    found = fit_serving(few, many, verify + drafting + 2 * shapes.SHALLOW.layers * 0.02, PASSES)
    assert (found.step, found.sample, found.draft) == pytest.approx((step, sample, draft), abs=1e-6)


def test_noise_gives_no_negative_costs() -> None:
    found = fit_serving(0.1, 0.05, 0.01, PASSES)
    assert (found.step, found.sample, found.draft) == (0, 0, 0)

"""Figures made of samples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.calibrate import fit
from srhpm_plugin.calibrate.data import WIDTHS

COST = st.floats(1e-4, 1e3)
TABLES = st.fixed_dictionaries(dict.fromkeys(WIDTHS, COST))


@given(query=COST, cell=COST, heads=st.integers(1, 64), share=st.integers(1, 8))
def test_attention_is_found_again(query: float, cell: float, heads: int, share: int) -> None:
    heads_kv, length, layers = heads, 64, 16
    heads *= share
    slopes = {m: layers * length * (query * m * heads + cell * heads_kv) / 1e6 for m in WIDTHS}
    found = fit.attention(slopes, heads=heads, heads_kv=heads_kv, length=length, layers=layers)
    for m in WIDTHS:
        again = layers * length * (found.query * m * heads + found.cell * heads_kv) / 1e6
        assert again == pytest.approx(slopes[m], rel=1e-3)


@given(slopes=TABLES)
def test_attention_costs_nothing_below_zero(slopes: dict[int, float]) -> None:
    found = fit.attention(slopes, heads=8, heads_kv=2, length=64, layers=4)
    assert found.query >= 0
    assert found.cell >= 0
    assert found.query + found.cell > 0


def test_a_pass_and_a_layer() -> None:
    shallow = {m: 0.5 + 2 * 0.1 * m for m in WIDTHS}
    deep = {m: 0.5 + 26 * 0.1 * m for m in WIDTHS}
    found = fit.passes(shallow, deep, deep[1] + 26 * 0.03, shallow_layers=2, deep_layers=26)
    assert found.fixed == pytest.approx(dict.fromkeys(WIDTHS, 0.5))
    assert found.layer == pytest.approx({m: 0.1 * m for m in WIDTHS})
    assert found.build == pytest.approx(0.03)


def test_noise_gives_no_negative_costs() -> None:
    found = fit.passes(
        dict.fromkeys(WIDTHS, 2.0),
        dict.fromkeys(WIDTHS, 1.0),
        0.5,
        shallow_layers=2,
        deep_layers=26,
    )
    assert found.layer == dict.fromkeys(WIDTHS, 0.0)
    assert found.build == 0.0


@given(table=TABLES)
def test_rising(table: dict[int, float]) -> None:
    risen = fit.rising(table)
    values = [risen[m] for m in WIDTHS]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(values))
    assert sum(values) == pytest.approx(sum(table.values()))
    before = [table[m] for m in WIDTHS]
    if all(a <= b for a, b in pairwise(before)):
        assert risen == table


def test_between_and_beyond_the_widths() -> None:
    table = {1: 1.0, 2: 1.0, 4: 2.0, 8: 6.0}
    assert [fit.at(table, m) for m in (1, 2, 3, 4, 6, 8, 9)] == [1.0, 1.0, 1.5, 2.0, 4.0, 6.0, 7.0]


@given(table=TABLES, a=st.floats(1, 40), b=st.floats(1, 40))
def test_more_tokens_never_cost_less(table: dict[int, float], a: float, b: float) -> None:
    risen = fit.rising(table)
    low, high = sorted((a, b))
    assert fit.at(risen, low) <= fit.at(risen, high) * (1 + 1e-9)


def test_the_best_of_each_round() -> None:
    from srhpm_plugin.calibrate.passes import least, quartile

    assert least([{("a", 1, 0): 3.0, ("a", 2, 0): 1.0}, {("a", 1, 0): 2.0, ("a", 2, 0): 5.0}]) == {
        ("a", 1, 0): 2.0,
        ("a", 2, 0): 1.0,
    }
    assert quartile([9.0, 1.0, 2.0, 50.0, 3.0]) == 2.0
    assert quartile([4.0]) == 4.0

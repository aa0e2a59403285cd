"""Expected tokens and time of a round."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.planner.cost.rounds import (
    Lengths,
    drafting_round,
    kept,
    lengths,
    plain_round,
)
from srhpm_plugin.planner.cost.types import WIDEST, Acceptance, Costs

SHARE = st.floats(0, 1)
POLICIES = st.tuples(st.integers(0, 7), st.integers(1, 8)).map(
    lambda pair: Lengths(min(pair), max(pair))
)


def accepted(
    each: float, sure: float = 0.9, goes_on: float = 0.5, proposes: float = 1.0
) -> Acceptance:
    return Acceptance((each,), sure, goes_on, proposes, "measured", "made up")


def test_always_three(costed: Callable[..., Costs]) -> None:
    found = drafting_round(costed(), accepted(0.8), Lengths(3, 3))
    assert found.drafted == pytest.approx(3)
    assert found.accepted == pytest.approx(0.8 + 0.64 + 0.512)
    # a pass over 4, its step, three drafted tokens, the first with the last one of the round before
    assert found.ms == pytest.approx(46 + 0.5 + 0.3 + 3 * (4.0 + 0.2) + 0.5)
    assert found.tok_s == pytest.approx(1000 * 2.952 / found.ms)


def test_a_drafter_that_looks_again(costed: Callable[..., Costs]) -> None:
    """A pass over the four that were verified."""
    found = drafting_round(costed(again=True), accepted(0.8), Lengths(3, 3))
    assert found.ms == pytest.approx(46 + 0.5 + 0.3 + 3 * (4.0 + 0.2) + 5.5)


def test_the_token_it_was_not_sure_of_costs_a_pass(costed: Callable[..., Costs]) -> None:
    never = drafting_round(costed(), accepted(0.8, goes_on=0.0), Lengths(3, 7))
    always = drafting_round(costed(), accepted(0.8), Lengths(3, 3))
    # and it has been read, so nothing joins the next round
    assert never.ms == pytest.approx(always.ms + 4.2 - 0.5)
    assert never.accepted == pytest.approx(always.accepted)


def test_rounds_without_a_draft(costed: Callable[..., Costs]) -> None:
    always = drafting_round(costed(), accepted(0.8), Lengths(3, 3))
    half = drafting_round(costed(), accepted(0.8, proposes=0.5), Lengths(3, 3))
    assert half.drafted == pytest.approx(1.5)
    assert half.accepted == pytest.approx(always.accepted / 2)
    assert half.ms == pytest.approx((always.ms + 40.5) / 2)


def test_without_a_drafter(costed: Callable[..., Costs]) -> None:
    found = plain_round(costed())
    assert (found.drafted, found.accepted, found.ms) == (0, 0, 40.5)
    assert found.tok_s == pytest.approx(1000 / 40.5)


def test_too_long(costed: Callable[..., Costs]) -> None:
    with pytest.raises(ValueError, match="longer"):
        drafting_round(costed(), accepted(0.5), Lengths(3, WIDEST))


@given(each=SHARE, sure=SHARE, goes_on=SHARE, policy=POLICIES)
def test_as_many_as_simulated_in_exact_sums(
    each: float, sure: float, goes_on: float, policy: Lengths
) -> None:
    made = accepted(each, sure, goes_on)
    shares = dict(lengths(made, policy))
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) >= 0
    assert set(shares) == set(range(policy.n_min, policy.n_max + 1))
    chances = [kept(made, policy.n_min, j) for j in range(policy.n_max + 1)]
    assert all(b <= a for a, b in pairwise(chances))
    assert chances[0] == 1


def test_as_simulated(costed: Callable[..., Costs]) -> None:
    dice, policy, n = random.Random(5), Lengths(2, 6), 40_000
    made = accepted(0.7, sure=0.9, goes_on=0.6)
    drafted = got = 0
    for _ in range(n):
        length = policy.n_min
        while length < policy.n_max and dice.random() < made.goes_on:
            length += 1
        drafted += length
        for j in range(length):
            if dice.random() >= (0.7 if j < policy.n_min else 0.9):
                break
            got += 1
    found = drafting_round(costed(), made, policy)
    assert found.drafted == pytest.approx(drafted / n, rel=0.02)
    assert found.accepted == pytest.approx(got / n, rel=0.02)


@given(a=SHARE, b=SHARE, policy=POLICIES)
def test_more_accepted_is_never_slower(
    costed: Callable[..., Costs], a: float, b: float, policy: Lengths
) -> None:
    low, high = (drafting_round(costed(), accepted(x), policy) for x in sorted((a, b)))
    assert low.tok_s <= high.tok_s + 1e-9


@given(
    each=SHARE, policy=POLICIES, factor=st.floats(1, 5), part=st.sampled_from(["target", "drafter"])
)
def test_dearer_passes_are_never_faster(
    costed: Callable[..., Costs], each: float, policy: Lengths, factor: float, part: str
) -> None:
    costs = costed()
    dearer: Any = {m: factor * ms for m, ms in getattr(costs, part).items()}
    before = drafting_round(costs, accepted(each), policy)
    after = drafting_round(replace(costs, **{part: dearer}), accepted(each), policy)
    assert after.tok_s <= before.tok_s + 1e-9
    assert after.accepted == before.accepted


def test_ngrams(costed: Callable[..., Costs]) -> None:
    costs = costed(drafter=None)
    found = drafting_round(costs, accepted(0.5, proposes=0.25), Lengths(0, 2))
    assert found.drafted == pytest.approx(0.5)
    assert found.accepted == pytest.approx(0.25 * (0.5 + 0.25))
    assert found.ms == pytest.approx(0.25 * 44 + 0.75 * 40 + 0.5 + 2 * 0.25 * 0.75 * 0.4)
    never = drafting_round(costs, accepted(0.5, proposes=0.0), Lengths(0, 2))
    assert never.tok_s == pytest.approx(plain_round(costs).tok_s)

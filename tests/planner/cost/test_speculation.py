"""Whether drafting pays, and how far."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.plan import Draft
from srhpm_plugin.planner.cost.rounds import Lengths
from srhpm_plugin.planner.cost.speculation import best, decide, policies
from srhpm_plugin.planner.cost.types import WIDEST, Acceptance, Costs

DRAFT = Draft("draft-simple", Path("/models/small.gguf"), 3, 7, 0.75)
NGRAM = Draft("ngram", None, 0, 7, 0.0)
DEAR: dict[str, Any] = {"target": {m: 40.0 * m for m in range(1, WIDEST + 1)}}


def accepted(each: float, basis: str = "measured", **more: float) -> Acceptance:
    given = {"sure": max(each, 0.9), "goes_on": 0.6, "proposes": 1.0} | more
    return Acceptance((each,), **given, basis=basis, source=f"{each:.0%} accepted")  # type: ignore[arg-type]


def plan(draft: Draft) -> Any:
    return SimpleNamespace(draft=draft)


def test_what_pays_stays_as_it_is(costed: Callable[..., Costs]) -> None:
    found = decide(plan(DRAFT), costed(), accepted(0.8, "assumed"), asked=False)
    assert (found.draft, found.off_reason, found.reasons) == (DRAFT, None, ())


@pytest.mark.parametrize("basis", ["measured", "assumed"])
def test_what_loses_is_off_with_the_numbers(costed: Callable[..., Costs], basis: str) -> None:
    found = decide(plan(DRAFT), costed(**DEAR), accepted(0.5, basis), asked=False)
    assert found.draft is None
    assert found.off_reason is not None
    for part in ("tokens/s predicted with small", "24.7 without", "takes", "50% accepted"):
        assert part in found.off_reason


def test_what_loses_as_asked_stays(costed: Callable[..., Costs]) -> None:
    found = decide(plan(DRAFT), costed(**DEAR), accepted(0.5, "assumed"), asked=True)
    assert found.draft == DRAFT
    assert found.reasons[0].startswith("drafting as asked, although it loses: ")


def test_a_little_loss_that_is_only_assumed_is_no_reason(costed: Callable[..., Costs]) -> None:
    dear = {m: 40.0 + 15.0 * (m - 1) for m in range(1, WIDEST + 1)}
    costs = costed(target=dear)
    each = next(
        x / 1000
        for x in range(1000)
        if best(costs, accepted(x / 1000, "assumed"), DRAFT)[1].tok_s * 40.5 / 1000 > 0.95
    )
    assert decide(plan(DRAFT), costs, accepted(each, "assumed"), asked=False).draft == DRAFT


def test_lengths_follow_what_was_measured(costed: Callable[..., Costs]) -> None:
    hopeless = decide(plan(DRAFT), costed(), accepted(0.3, sure=0.3, goes_on=0.9), asked=False)
    if hopeless.draft is not None:
        assert hopeless.draft.n_max < DRAFT.n_max
    perfect = decide(plan(DRAFT), costed(), accepted(0.99, goes_on=0.1), asked=False)
    assert perfect.draft is not None
    assert perfect.draft.n_min > DRAFT.n_min
    assert perfect.reasons[0].startswith(f"drafts of {perfect.draft.n_min} to ")


def test_assumptions_do_not_change_lengths(costed: Callable[..., Costs]) -> None:
    lengths, _ = best(costed(), accepted(0.99, "assumed", goes_on=0.1), DRAFT)
    assert lengths == Lengths(3, 7)


def test_no_policy_is_wider_than_what_is_exact() -> None:
    for draft in (DRAFT, NGRAM):
        for policy in policies(draft):
            assert 0 <= policy.n_min <= policy.n_max <= 7


def test_ngrams_get_shorter_where_wide_passes_are_dear(costed: Callable[..., Costs]) -> None:
    dear = {m: 40.0 if m <= 4 else 40.0 * m for m in range(1, WIDEST + 1)}
    costs = costed(target=dear, drafter=None)
    found = decide(plan(NGRAM), costs, accepted(0.7, "assumed", proposes=0.2), asked=False)
    assert found.draft is not None
    assert (found.draft.n_min, found.draft.n_max) == (0, 3)
    assert found.draft.n_max < NGRAM.n_max

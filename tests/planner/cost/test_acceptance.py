"""What was accepted of a pair, measured before assumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.dropin.records import LIVE, begin
from srhpm_plugin.plan import Draft, HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost import pairs
from srhpm_plugin.planner.cost.acceptance import LEAST, Sums, acceptance, from_counts, from_sums
from srhpm_plugin.planner.cost.pairs import Counts
from srhpm_plugin.planner.cost.rounds import Lengths, drafting_round
from srhpm_plugin.planner.cost.types import Costs

SAID: dict[str, Any] = {
    "n_min": 3, "n_max": 5, "p_min": 0.75, "passes": 100,
    "drafted_per_position": [100, 100, 100, 60, 30],
    "accepted_per_position": [80, 64, 48, 27, 12],
}  # fmt: skip


@pytest.fixture
def plan(models: SimpleNamespace, machines: SimpleNamespace, tmp_path: Path) -> LaunchPlan:
    target, drafter = tmp_path / "target.gguf", tmp_path / "drafter.gguf"
    target.write_bytes(b"a target")
    drafter.write_bytes(b"a drafter")
    made = make_plan(
        HostRequest(target, draft="none"),
        model=replace(models.small, path=target), machine=machines.laptop, known=(), command=False,
    )  # fmt: skip
    return replace(made, draft=Draft("draft-simple", drafter, 3, 7, 0.75), draft_off_reason=None)


def test_from_counts() -> None:
    counts = pairs.counts(SAID, 331)
    assert counts is not None
    assert counts.rounds == 100
    found = from_counts(counts)
    assert found is not None
    assert found.each == pytest.approx((0.8, 0.8, 0.75))
    # 0.45 of 0.48 at position 4 (of 60), 0.4 of 0.45 at position 5 (of 30)
    assert found.sure == pytest.approx((60 * 0.45 / 0.48 + 30 * 0.4 / 0.45) / 90)
    assert found.goes_on == pytest.approx((60 + 30) / (100 + 60))
    assert (found.proposes, found.basis) == (1.0, "measured")


def test_the_counts_come_out_again(costed: Callable[..., Costs]) -> None:
    counts = pairs.counts(SAID, 331)
    assert counts is not None
    found = from_counts(counts)
    assert found is not None
    again = drafting_round(costed(), found, Lengths(3, 5))
    assert again.drafted == pytest.approx(390 / 100, rel=0.02)
    assert again.accepted == pytest.approx(231 / 100, rel=0.02)


@pytest.mark.parametrize(
    "change",
    [
        {"relax": 0.5},
        {"accepted_per_position": [101, 0, 0, 0, 0]},
        {"accepted_per_position": [1]},
        {"drafted_per_position": []},
        {"n_min": "three"},
    ],
)
def test_no_counts(change: dict[str, Any]) -> None:
    assert pairs.counts({**SAID, **change}, 331) is None


def test_few_counts_say_nothing() -> None:
    few = Counts(3, 7, 0.75, 20, (20, 20, LEAST - 41), (10, 5, 2))
    assert from_counts(few) is None
    assert from_counts(few + few) is not None


def test_passes_without_a_draft_count() -> None:
    counts = pairs.counts({**SAID, "n_min": 0, "passes": 100}, 1232)
    assert counts is not None
    assert counts.rounds == 1000
    found = from_counts(counts)
    assert found is not None
    assert found.proposes == pytest.approx(0.1)


def test_other_policies_are_not_added() -> None:
    one, other = Counts(3, 7, 0.75, 1, (1,), (1,)), Counts(1, 7, 0.75, 1, (1, 1), (1, 0))
    assert pairs.total([None, one, other, one]) == Counts(3, 7, 0.75, 2, (2,), (2,))
    assert pairs.total([None]) is None


@given(
    each=st.floats(0.05, 0.95),
    goes_on=st.floats(0.05, 0.95),
    policy=st.sampled_from([(3, 7), (1, 7), (3, 3), (0, 4)]),
)
def test_sums_are_found_again(
    costed: Callable[..., Costs], each: float, goes_on: float, policy: tuple[int, int]
) -> None:
    n_min, n_max = policy
    length = n_min + sum(goes_on**k for k in range(1, n_max - n_min + 1))
    rounds = 1_000_000
    sure, got, product = 1 - (1 - each) / 2, 0.0, 1.0
    for j in range(1, n_max + 1):
        product *= each if j <= n_min else sure
        got += product * (1 if j <= n_min else goes_on ** (j - n_min))
    sums = Sums(round(rounds * (1 + got)), round(rounds * length), round(rounds * got))
    found = from_sums(sums, n_min, n_max)
    assert found is not None
    again = drafting_round(costed(), found, Lengths(n_min, n_max))
    assert again.drafted == pytest.approx(length, abs=0.01)
    assert again.accepted == pytest.approx(got, abs=0.01)


def test_sums_that_cannot_be() -> None:
    assert from_sums(Sums(10, 1000, 2000), 3, 7) is None
    assert from_sums(Sums(100, LEAST - 1, 10), 3, 7) is None


def test_assumed_and_said_so(plan: LaunchPlan) -> None:
    found = acceptance(plan)
    assert found is not None
    assert found.basis == "assumed"
    assert "assumed" in found.source
    assert acceptance(replace(plan, draft=None)) is None


def test_remembered(plan: LaunchPlan) -> None:
    counts = pairs.counts(SAID, 331)
    assert counts is not None
    assert plan.draft is not None
    pairs.remember(pairs.key(plan.model.path, plan.draft), counts)
    found = acceptance(plan)
    assert found is not None
    assert found.basis == "measured"
    assert found.source == "59% of 390 drafted tokens were accepted of this pair"
    assert plan.draft.path is not None
    plan.draft.path.write_bytes(b"another drafter")
    other = acceptance(plan)
    assert other is not None
    assert other.basis == "assumed"


def test_only_the_newest_pairs_are_kept() -> None:
    counts = pairs.counts(SAID, 331)
    assert counts is not None
    for i in range(pairs.MOST + 2):
        pairs.remember(str(i), counts)
    pairs.remember("2", counts)
    pairs.remember("new", counts)
    assert pairs.recall("0") is None
    assert pairs.recall("3") is None
    assert pairs.recall("2") == pairs.recall("new") == counts


def launched(plan: LaunchPlan, tokens: int, drafted: int, accepted: int, **policy: int) -> None:
    pair = pairs.policy(plan)
    assert pair is not None
    path = begin("k", {"host": "ollama", "kind": "srhpm", "live": True, "pair": pair | policy})
    assert path is not None
    path.with_suffix(LIVE).write_text(
        f"state=ready\ntokens={tokens}\nms=1000\ndrafted={drafted}\naccepted={accepted}\n"
    )


def test_from_launches_of_hosts(plan: LaunchPlan) -> None:
    launched(plan, tokens=300, drafted=300, accepted=200, n_min=3, n_max=3)
    found = acceptance(plan)
    assert found is not None
    assert found.basis == "measured"
    a = found.each[0]
    assert a + a**2 + a**3 == pytest.approx(2.0, abs=1e-3)
    assert pairs.policy(replace(plan, relax=0.5)) is None
    assert pairs.policy(replace(plan, draft=None)) is None


def test_launches_of_another_policy_are_older_news(plan: LaunchPlan) -> None:
    launched(plan, tokens=100_000, drafted=300_000, accepted=0, n_min=3, n_max=3)
    launched(plan, tokens=300, drafted=300, accepted=200, n_min=3, n_max=4)
    found = acceptance(plan)
    assert found is not None
    assert found.source.startswith("67% of 300 drafted tokens")

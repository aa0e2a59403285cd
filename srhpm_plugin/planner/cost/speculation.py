"""Whether drafting pays, and how far to draft: the built-in step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...machine.types import Machine
from ...plan import Draft, LaunchPlan
from ..hosted import label
from .rounds import Lengths, drafting_round, plain_round
from .types import Acceptance, Costs, Round

# Other lengths than the usual ones must be better by more than a prediction may be wrong by; so
# must plain decoding where what is accepted is only assumed.
_WORTH = 1.05
_LOSES_IF_ASSUMED = 0.9
_LONGEST = 7  # 1 + 7 tokens are the widest pass that is exact on the CPU


@dataclass(frozen=True)
class Speculation:
    """Outcome of the step.

    Attributes:
        draft: the drafter with its lengths; ``None`` where drafting would lose.
        off_reason: why, when ``draft`` is ``None``.
        reasons: in words.
    """

    draft: Draft | None
    off_reason: str | None = None
    reasons: tuple[str, ...] = ()


def policies(draft: Draft) -> Iterator[Lengths]:
    """Lengths that are worth a look, the plan's own first."""
    yield Lengths(draft.n_min, draft.n_max)
    if draft.type == "ngram":
        for n in (3, 5, _LONGEST):
            yield Lengths(0, n)
        return
    for n_min in range(1, _LONGEST + 1):
        for n_max in range(n_min, _LONGEST + 1):
            yield Lengths(n_min, n_max)


def best(costs: Costs, acceptance: Acceptance, draft: Draft) -> tuple[Lengths, Round]:
    """The fastest lengths, with what they come to: the draft's own unless others are clearly
    better. Where nothing was measured only the usual ones are looked at, but for n-grams."""
    own, *others = policies(draft)
    chosen, at = own, drafting_round(costs, acceptance, own)
    least = at.tok_s * _WORTH
    if acceptance.basis == "assumed" and draft.type != "ngram":
        return chosen, at
    for policy in others:
        there = drafting_round(costs, acceptance, policy)
        if there.tok_s > max(least, at.tok_s):
            chosen, at = policy, there
    return chosen, at


def decide(plan: LaunchPlan, costs: Costs, acceptance: Acceptance, asked: bool) -> Speculation:
    """Drafting with the best lengths, or none.

    Args:
        plan: with a drafter.
        asked: the user named the drafter, so it stays, with the numbers in the reasons.
    """
    draft = plan.draft
    assert draft is not None
    lengths, there = best(costs, acceptance, draft)
    plain = plain_round(costs).tok_s
    enough = _LOSES_IF_ASSUMED if acceptance.basis == "assumed" else 1.0
    words = numbers(draft, lengths, there, plain, costs, acceptance)
    if there.tok_s < plain * enough:
        if asked:
            return Speculation(draft, None, (f"drafting as asked, although it loses: {words}",))
        return Speculation(None, f"it would be slower: {words}")
    if lengths == Lengths(draft.n_min, draft.n_max):
        return Speculation(draft)
    why = (
        f"drafts of {lengths.n_min} to {lengths.n_max} tokens instead of {draft.n_min} to "
        f"{draft.n_max}: {words}"
    )
    return Speculation(replace(draft, n_min=lengths.n_min, n_max=lengths.n_max), None, (why,))


def numbers(
    draft: Draft,
    lengths: Lengths,
    there: Round,
    plain: float,
    costs: Costs,
    acceptance: Acceptance,
) -> str:
    """Why, on one line."""
    name = label(draft.path) if draft.path else draft.type
    width = 1 + max(1, lengths.n_min if draft.type != "ngram" else lengths.n_max)
    parts = [
        f"{there.tok_s:.1f} tokens/s predicted with {name}, {plain:.1f} without",
        f"a pass over {width} tokens takes {costs.target[width] / costs.target[1]:.2f} of one",
    ]
    if costs.drafter is not None:
        one = (costs.drafter[1] + costs.drafted) / costs.target[1]
        parts.append(f"a drafted token {one:.2f}")
    return f"{parts[0]} ({', '.join((*parts[1:], acceptance.source))})"


def speculation(plan: LaunchPlan, machine: Machine, asked: bool) -> Speculation | None:
    """The step; ``None`` without a drafter, or where costs are not known."""
    from ...plugins import plugins

    if plan.draft is None:
        return None
    hook = plugins().hook
    costs = hook.srhpm_plan_costs(plan=plan, machine=machine)
    acceptance = hook.srhpm_plan_acceptance(plan=plan)
    if costs is None or acceptance is None or costs.gaps:
        return None
    return decide(plan, costs, acceptance, asked)

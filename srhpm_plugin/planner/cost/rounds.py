"""Expected tokens and time of a round of drafting and verifying: pure functions.

With ``a_i`` the probability that drafted token i is kept if all before it were, a draft of length
L brings ``A_1 + ... + A_L`` tokens, ``A_j = a_1 * ... * a_j``, and one more of the target's own.
Lengths beyond ``n_min`` are reached with probability ``g ** (L - n_min)``, ``g`` being how often
the drafter is confident of the next token. A model that drafts token by token needs a pass for
each, and one more for the token that it was not confident of. One over all that was verified comes
after that, or where the drafter keeps what it drafted, the last token of a full draft joins the
next round's first pass. In a share of the rounds nothing is proposed: at the end of an answer, and
mostly so by n-grams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .types import WIDEST, Acceptance, Costs, Round


@dataclass(frozen=True)
class Lengths:
    """A policy: always ``n_min``, up to ``n_max`` while confident."""

    n_min: int
    n_max: int


def kept(acceptance: Acceptance, n_min: int, j: int) -> float:
    """Probability that the first ``j`` drafted tokens are all kept, if so many were drafted."""
    product = 1.0
    for i in range(j):
        own = acceptance.each[min(i, len(acceptance.each) - 1)]
        product *= own if i < n_min else max(own, acceptance.sure)
    return product


def lengths(acceptance: Acceptance, policy: Lengths) -> Iterator[tuple[int, float]]:
    """Each length of a draft with its probability, which add up to one."""
    left = 1.0
    for n in range(policy.n_min, policy.n_max):
        here = left * (1 - acceptance.goes_on)
        yield n, here
        left -= here
    yield policy.n_max, left


def drafting_round(costs: Costs, acceptance: Acceptance, policy: Lengths) -> Round:
    """A round of a drafter with passes of its own, or of n-grams where ``costs.drafter`` is none
    (then drafts have ``n_max`` tokens)."""
    if policy.n_max >= WIDEST:
        raise ValueError(f"drafts of {policy.n_max} tokens are longer than any that is costed")
    if costs.drafter is None:
        return _ngram_round(costs, acceptance, policy)
    drafted = accepted = ms = changes = 0.0
    for n, probability in lengths(acceptance, policy):
        passes = n if n == policy.n_max else n + 1
        one = costs.target[1 + n] + costs.step + costs.draft
        one += passes * (costs.drafter[1] + costs.drafted)
        if costs.again:
            one += costs.drafter[1 + n]
        elif n == policy.n_max:
            one += costs.drafter[2] - costs.drafter[1]
        drafted += probability * n
        accepted += probability * sum(kept(acceptance, policy.n_min, j + 1) for j in range(n))
        ms += probability * one
        changes += probability * probability
    # Another length than the last one's means another graph.
    ms += (1 - changes) * costs.rebuild
    share = acceptance.proposes
    without = (1 - share) * plain_round(costs).ms
    return Round(share * drafted, share * accepted, share * ms + without)


def _ngram_round(costs: Costs, acceptance: Acceptance, policy: Lengths) -> Round:
    n, share = policy.n_max, acceptance.proposes
    accepted = sum(kept(acceptance, n, j + 1) for j in range(n))
    ms = share * costs.target[1 + n] + (1 - share) * costs.target[1] + costs.step
    ms += 2 * share * (1 - share) * costs.rebuild
    return Round(share * n, share * accepted, ms)


def plain_round(costs: Costs) -> Round:
    """Without a drafter."""
    return Round(0.0, 0.0, costs.target[1] + costs.step)

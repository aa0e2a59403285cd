"""How much of a drafter's tokens is kept: measured of the pair, or else assumed by type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...dropin import records
from ...plan import Draft, DraftType, LaunchPlan
from ..measured import launches
from . import pairs
from .pairs import Counts
from .types import Acceptance

# Fewer drafted tokens than these say little of a pair.
LEAST = 64

# Assumed where nothing was measured. A small model of the same family gets three of four tokens
# right in chat, an MTP head somewhat more; n-grams are right for as long as a repetition lasts, and
# most text is none. Kept pessimistic rather than not: `plan` says that they are assumed, and the
# first `bench decode` or host launch replaces them.
_PRIORS: dict[DraftType, Acceptance] = {
    "draft-simple": Acceptance((0.75,), 0.88, 0.6, 1.0, "assumed", ""),
    "draft-mtp": Acceptance((0.8,), 0.9, 0.6, 1.0, "assumed", ""),
    "ngram": Acceptance((0.7,), 0.7, 1.0, 0.08, "assumed", ""),
}


def prior(draft: Draft) -> Acceptance:
    """What is assumed of a drafter of this type."""
    known = _PRIORS[draft.type]
    kind = {
        "draft-simple": "a model of its own",
        "draft-mtp": "an MTP head",
        "ngram": "n-grams",
    }[draft.type]
    source = f"{known.each[0]:.0%} of tokens accepted is assumed of {kind}, not measured"
    return _with(known, source)


def _with(known: Acceptance, source: str) -> Acceptance:
    return Acceptance(known.each, known.sure, known.goes_on, known.proposes, known.basis, source)


def from_counts(counts: Counts, source: str = "") -> Acceptance | None:
    """Of counts by position; ``None`` where they are too few.

    ``A_j``, the share of drafts of length j and more whose first j tokens were kept, gives
    ``a_j = A_j / A_(j-1)``: up to ``n_min`` whatever the drafter's confidence, beyond it of tokens
    that it was confident of.
    """
    if sum(counts.drafted) < LEAST or not counts.rounds:
        return None
    ratios: list[float] = []
    before = 1.0
    for drafted, accepted in zip(counts.drafted, counts.accepted, strict=True):
        here = accepted / drafted if drafted else 0.0
        ratios.append(min(1.0, here / before) if before else 0.0)
        before = here
    always = counts.n_min or len(ratios)
    beyond = list(zip(counts.drafted, ratios, strict=True))[counts.n_min :]
    weight = sum(n for n, _ in beyond)
    sure = sum(n * ratio for n, ratio in beyond) / weight if weight else ratios[-1]
    # Each draft of length j that was not the longest went on, or did not.
    asked = counts.drafted[max(0, counts.n_min - 1) : counts.n_max - 1]
    went = counts.drafted[max(1, counts.n_min) : counts.n_max]
    goes_on = min(1.0, sum(went) / sum(asked)) if sum(asked) else 0.0
    return Acceptance(
        tuple(ratios[:always]),
        sure,
        goes_on,
        min(1.0, counts.drafted[0] / counts.rounds),
        "measured",
        source
        or f"{sum(counts.accepted) / sum(counts.drafted):.0%} of "
        f"{sum(counts.drafted)} drafted tokens were accepted of this pair",
    )


@dataclass(frozen=True)
class Sums:
    """What a server's launches came to: tokens generated, drafted and accepted."""

    tokens: int
    drafted: int
    accepted: int


def from_sums(sums: Sums, n_min: int, n_max: int, source: str = "") -> Acceptance | None:
    """Of sums under a policy: one probability for all positions; ``None`` where they are too few.

    A round brings one token of the target's own, so there were ``tokens - accepted`` rounds. How
    often the drafter goes on follows from the mean length, the probability from the mean number
    accepted, with half as many errors where the drafter was confident.
    """
    rounds = sums.tokens - sums.accepted
    if sums.drafted < LEAST or rounds < 1 or sums.accepted > sums.drafted:
        return None
    length, wanted = sums.drafted / rounds, sums.accepted / rounds

    def mean_length(g: float) -> float:
        return n_min + sum(g**k for k in range(1, n_max - n_min + 1))

    goes_on = _solve(mean_length, length)

    def mean_accepted(a: float) -> float:
        sure, got, product = 1 - (1 - a) / 2, 0.0, 1.0
        for j in range(1, n_max + 1):
            product *= a if j <= n_min else sure
            got += product * (1.0 if j <= n_min else goes_on ** (j - n_min))
        return got

    each = _solve(mean_accepted, wanted)
    return Acceptance(
        (each,),
        1 - (1 - each) / 2,
        goes_on,
        1.0,
        "measured",
        source
        or f"{sums.accepted / sums.drafted:.0%} of {sums.drafted} drafted tokens were "
        "accepted in launches of this pair",
    )


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    """Where in 0 to 1 a rising function has a value; the nearer end where it has it nowhere."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2


def acceptance(plan: LaunchPlan) -> Acceptance | None:
    """Of the plan's pair; ``None`` without a drafter."""
    draft = plan.draft
    if draft is None:
        return None
    pair = pairs.key(plan.model.path, draft)
    known = pairs.recall(pair)
    if known is not None and (found := from_counts(known)) is not None:
        return found
    return (_of_launches(pair) if draft.type != "ngram" else None) or prior(draft)


def _of_launches(pair: str) -> Acceptance | None:
    """Of the newest launches that ran the pair under one policy."""
    tokens = drafted = accepted = 0
    policy: tuple[int, int] | None = None
    for path, facts in launches():
        said = facts.get("pair")
        if not isinstance(said, dict) or said.get("key") != pair:
            continue
        n_min, n_max = said.get("n_min"), said.get("n_max")
        if not isinstance(n_min, int) or not isinstance(n_max, int) or not 0 <= n_min <= n_max:
            continue
        if policy not in (None, (n_min, n_max)):
            break
        policy = n_min, n_max
        live = records.read_live(path)
        tokens += live.tokens
        drafted += live.drafted
        accepted += live.accepted
    return from_sums(Sums(tokens, drafted, accepted), *policy) if policy else None

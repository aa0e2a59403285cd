"""What the steps hand to one another: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...calibrate.data import Table

WIDEST = 16
"""Passes of up to so many tokens are asked for."""


@dataclass(frozen=True)
class Costs:
    """What a plan's passes cost, milliseconds. Tables are by tokens in the pass, 1 to
    :data:`WIDEST`, and count all that a pass of the server takes: weights, attention, overhead, and
    taking a token from each position.

    Attributes:
        ctx: tokens in the cache that attention looks at.
        target: passes of the target under the plan.
        drafter: passes of the drafter; ``None`` where drafting takes no passes.
        stock: a pass over one token on an unpatched server; ``None`` where unknown.
        step: what a round adds, however many tokens it brings.
        drafted: what each drafted token adds to the drafter's pass.
        draft: what a round with a draft adds, however long.
        rebuild: what a pass adds whose width is not that of the one before it.
        again: what was verified passes through the drafter once more; else its own rows stay.
        gaps: parts of the model that are counted by a formula nobody has checked, in words.
    """

    ctx: int
    target: Table
    drafter: Table | None
    stock: float | None
    step: float
    drafted: float
    draft: float
    rebuild: float
    again: bool
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Acceptance:
    """How much of what is drafted is kept.

    Attributes:
        each: probability that the token at each position is kept if all before it were, whatever
            the drafter's confidence; the last one holds for all further positions.
        sure: the same for a token beyond ``n_min``, of which the drafter was confident.
        goes_on: probability that the drafter is confident of the next token beyond ``n_min``.
        proposes: share of the rounds in which anything is proposed.
        basis: ``measured`` of this pair, or ``assumed``.
        source: the same in words.
    """

    each: tuple[float, ...]
    sure: float
    goes_on: float
    proposes: float
    basis: Literal["measured", "assumed"]
    source: str


@dataclass(frozen=True)
class Round:
    """A round of drafting and verifying, on average.

    Attributes:
        drafted, accepted: tokens.
        ms: milliseconds.
    """

    drafted: float
    accepted: float
    ms: float

    @property
    def tok_s(self) -> float:
        """Tokens per second: those accepted and the target's own."""
        return 1000 * (1 + self.accepted) / self.ms

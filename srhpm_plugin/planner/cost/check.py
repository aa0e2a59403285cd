"""A prediction beside what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...calibrate import Calibration
from ...machine.types import Machine
from ...plan import LaunchPlan
from . import acceptance as accepted
from .costs import costs_at
from .pairs import Counts
from .predict import round_of


@dataclass(frozen=True)
class Check:
    """One plan on one model at one length of context.

    Attributes:
        model, drafter: names.
        context: tokens in the cache, on average while it was measured.
        measured: tokens per second of each round.
        stock: the same of the unpatched server without drafter, in turn with them.
        before: predicted with what was known of the pair before.
        before_basis: whether that was ``measured`` or ``assumed``; empty without a drafter.
        after: predicted with what was accepted in this very run: what the costs alone get wrong.
        stock_predicted: of the unpatched server.
        counts: what was drafted and accepted.
    """

    model: str
    drafter: str
    context: float
    measured: tuple[float, ...]
    stock: tuple[float, ...]
    before: float
    before_basis: str
    after: float
    stock_predicted: float | None
    counts: Counts | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain data, errors included."""
        return {
            "model": self.model,
            "drafter": self.drafter,
            "context": round(self.context),
            "tok_s": list(self.measured),
            "stock_tok_s": list(self.stock),
            "predicted": self.before,
            "acceptance": self.before_basis,
            "predicted_with_its_acceptance": self.after,
            "stock_predicted": self.stock_predicted,
            "counts": None if self.counts is None else asdict(self.counts),
            "error": error(self.before, self.measured),
            "error_with_its_acceptance": error(self.after, self.measured),
            "stock_error": error(self.stock_predicted, self.stock),
        }


def error(predicted: float | None, measured: Sequence[float]) -> float | None:
    """How much too high (or low, below zero) a prediction is, as a share of the median measured."""
    from statistics import median

    if predicted is None or not measured or not median(measured):
        return None
    return predicted / median(measured) - 1


def check(
    plan: LaunchPlan,
    machine: Machine,
    calibration: Calibration,
    *,
    drafter: str,
    context: float,
    measured: Sequence[float],
    stock: Sequence[float],
    counts: Counts | None,
) -> Check:
    """Predicts ``plan`` at ``context``, before what the run taught is remembered.

    Args:
        plan: what was measured.
        drafter: its name in words; empty for none.
        context: tokens in the cache on average.
        measured, stock: tokens per second by round.
        counts: what was drafted and accepted in the run.

    Raises:
        Unknown: the calibration lacks a weight type.
    """
    costs = costs_at(plan, machine, calibration, round(context))
    known = accepted.acceptance(plan)
    own = accepted.from_counts(counts) if counts is not None else None
    return Check(
        model=plan.model.path.name,
        drafter=drafter,
        context=context,
        measured=tuple(measured),
        stock=tuple(stock),
        before=round_of(plan, costs, known).tok_s,
        before_basis=known.basis if known else "",
        after=round_of(plan, costs, own or known).tok_s,
        stock_predicted=None if costs.stock is None else 1000 / costs.stock,
        counts=counts,
    )

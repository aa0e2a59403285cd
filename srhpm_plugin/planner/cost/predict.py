"""Tokens per second of a plan and of an unpatched server: the built-in step."""

from __future__ import annotations

from dataclasses import replace

from ...machine.types import Machine
from ...plan import LaunchPlan, Predicted
from ..measured import measured
from .rounds import Lengths, drafting_round, plain_round
from .types import Acceptance, Costs, Round


def predict(plan: LaunchPlan, machine: Machine) -> Predicted | None:
    """What launches of the plan measured, else what the calibration says; ``None`` without either.

    A measured speed is ours alone: what is known of an unpatched server then still comes from the
    calibration.
    """
    from ...plugins import plugins

    known = measured(plan)
    hook = plugins().hook
    costs = hook.srhpm_plan_costs(plan=plan, machine=machine)
    if costs is None:
        return known
    acceptance = hook.srhpm_plan_acceptance(plan=plan) if plan.draft is not None else None
    if plan.draft is not None and acceptance is None:
        return known
    expected = predicted(plan, costs, acceptance)
    if known is None:
        return expected
    return replace(known, stock_tok_s=expected.stock_tok_s, pass_ms=expected.pass_ms)


def predicted(plan: LaunchPlan, costs: Costs, acceptance: Acceptance | None) -> Predicted:
    """The speed that follows from costs and acceptance."""
    there = round_of(plan, costs, acceptance)
    width = 1 if plan.draft is None else 1 + round(there.drafted)
    words = [f"after {costs.ctx} tokens of context"]
    if acceptance is not None:
        words.append(acceptance.source)
    if costs.gaps:
        words.append(f"roughly, as {' and '.join(costs.gaps)} were not measured")
    return Predicted(
        tok_s=there.tok_s,
        stock_tok_s=None if costs.stock is None else 1000 / costs.stock,
        pass_ms=costs.target[max(1, width)],
        acceptance=there.accepted / there.drafted if there.drafted else None,
        basis="estimated" if costs.gaps else "calibrated",
        source="; ".join(words),
    )


def round_of(plan: LaunchPlan, costs: Costs, acceptance: Acceptance | None) -> Round:
    """A round under the plan."""
    draft = plan.draft
    if draft is None or acceptance is None:
        return plain_round(costs)
    return drafting_round(costs, acceptance, Lengths(draft.n_min, draft.n_max))

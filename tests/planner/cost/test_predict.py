"""Plans say how fast they will be once the machine was measured."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.calibrate import Calibration, save
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, LaunchPlan, Predicted
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost import pairs
from srhpm_plugin.planner.cost.pairs import Counts
from srhpm_plugin.plugins import plugins

Make = Callable[..., Calibration]
Plan = Callable[..., LaunchPlan]


@pytest.fixture
def target(models: SimpleNamespace) -> ModelInfo:
    made: ModelInfo = models.make(
        "/models/target.gguf", n_layer=24, n_embd=2048, n_ff=8192, heads=16
    )
    return made


@pytest.fixture
def plan(target: ModelInfo, measured_machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """``plan(**asked)`` of the target on a machine with our kernels."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")

    def make(known: tuple[Path, ...] = (), **asked: Any) -> LaunchPlan:
        model = asked.pop("model", target)
        on = asked.pop("machine", measured_machine)
        return make_plan(
            HostRequest(model.path, **asked), model=model, machine=on, known=known, command=False
        )

    return make


@pytest.fixture
def small(
    models: SimpleNamespace, headers: Callable[[ModelInfo], Path], tmp_path: Path
) -> Callable[..., Path]:
    """``small(**sizes)`` is the file of a drafter."""

    def make(**sizes: Any) -> Path:
        path = tmp_path / "small.gguf"
        path.write_bytes(b"a drafter")
        return headers(models.make(path, **sizes))

    return make


@pytest.fixture
def figures(calibration: Make, measured_machine: Machine) -> Calibration:
    made = calibration(measured_machine)
    save(made)
    return made


def test_before_calibration(plan: Plan) -> None:
    made = plan(draft="none")
    assert made.predicted == Predicted()
    assert "type srhpm-plugin calibrate" in made.reasons[-1]


def test_plain(plan: Plan, figures: Calibration, target: ModelInfo) -> None:
    predicted = plan(draft="none").predicted
    assert predicted.basis == "calibrated"
    assert predicted.tok_s is not None
    assert predicted.pass_ms is not None
    # a pass, and the server's 0.2 ms
    assert predicted.tok_s == pytest.approx(1000 / (predicted.pass_ms + 0.2))
    assert predicted.stock_tok_s == pytest.approx(predicted.tok_s, rel=0.1)
    assert predicted.source == "after 256 tokens of context"


def test_a_drafter_that_pays(
    plan: Plan,
    figures: Calibration,
    small: Callable[..., Path],
) -> None:
    path = small(n_layer=8, n_embd=512, n_ff=1024, heads=8)
    plain, made = plan(draft="none"), plan(draft=str(path))
    assert made.draft is not None
    assert made.predicted.tok_s is not None
    assert plain.predicted.tok_s is not None
    assert made.predicted.tok_s > 1.3 * plain.predicted.tok_s
    assert made.predicted.source is not None
    assert "assumed of a model of its own, not measured" in made.predicted.source
    assert made.predicted.acceptance is not None
    assert 0 < made.predicted.acceptance < 1


def slow(calibration: Make, machine: Machine, power: int = 1) -> Calibration:
    """Weights of a pass over M tokens take M to the ``power`` times those of one over one."""
    made = calibration(machine)
    table = {m: 0.05 * m**power for m in (1, 2, 4, 8)}
    products: Any = {side: dict.fromkeys(types, table) for side, types in made.products.items()}
    return replace(made, products=products)


def test_a_drafter_that_loses(
    plan: Plan,
    calibration: Make,
    measured_machine: Machine,
    small: Callable[..., Path],
) -> None:
    path = small(n_layer=8, n_embd=1024, n_ff=2048, heads=8)
    before = plan(known=(path,))
    assert before.draft is not None
    assert before.draft.path == path
    save(slow(calibration, measured_machine))
    made = plan(known=(path,))
    assert made.draft is not None
    assert made.draft.type == "ngram"
    assert sum(use.draft for use in made.memory) == 0, "no room is taken for it"
    said = next(reason for reason in made.reasons if reason.startswith("no drafting: "))
    assert "it would be slower: " in said
    assert "predicted with small" in said
    asked = plan(draft=str(path))
    assert asked.draft is not None
    assert any("although it loses" in reason for reason in asked.reasons)


def test_all_drafting_loses(plan: Plan, calibration: Make, measured_machine: Machine) -> None:
    save(slow(calibration, measured_machine, power=3))
    made = plan()
    assert made.draft is None
    assert made.draft_off_reason is not None
    assert "predicted with ngram" in made.draft_off_reason
    assert any("no drafting: " in reason for reason in made.reasons)
    assert made.predicted.basis == "calibrated"


def test_lengths_of_a_measured_pair(
    plan: Plan,
    figures: Calibration,
    small: Callable[..., Path],
) -> None:
    path = small(n_layer=4, n_embd=512, n_ff=1024, heads=8)
    first = plan(draft=str(path))
    assert first.draft is not None
    n = (1000,) * 3
    pairs.remember(
        pairs.key(first.model.path, first.draft),
        Counts(3, 7, 0.75, 1000, (*n, 100), (995, 990, 985, 97)),
    )
    made = plan(draft=str(path))
    assert made.draft is not None
    assert made.draft.n_min > 3
    assert made.predicted.source is not None
    assert "accepted of this pair" in made.predicted.source
    assert any("instead of 3 to 7" in reason for reason in made.reasons)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"threads": 2}, "measured with 4 threads"),
        ({"cache_type_k": "q8_0"}, "f16 cache only"),
        ({"backend": "stock"}, "for the backend srhpm only"),
    ],
)
def test_what_cannot_be_predicted(
    plan: Plan, figures: Calibration, asked: dict[str, Any], words: str
) -> None:
    made = plan(draft="none", **asked)
    assert made.predicted.tok_s is None
    assert words in made.reasons[-1]


def test_a_type_that_was_not_measured(
    plan: Plan, calibration: Make, measured_machine: Machine
) -> None:
    made = calibration(measured_machine)
    less: Any = {"ours": {}, "stock": {}}
    save(replace(made, products=less))
    said = plan(draft="none")
    assert said.predicted.tok_s is None
    assert "Q4_K weights were not measured" in said.reasons[-1]


def test_gpus_are_not_guessed(plan: Plan, calibration: Make, machines: SimpleNamespace) -> None:
    save(calibration(machines.big_gpu, threads=16))
    made = plan(draft="none", machine=machines.big_gpu)
    assert made.gpu_layers
    assert made.predicted.tok_s is None
    assert "parts of this one lie on a GPU" in made.reasons[-1]


def test_what_nobody_checked_is_an_estimate(
    plan: Plan, figures: Calibration, models: SimpleNamespace
) -> None:
    made = plan(draft="none", model=models.moe30)
    assert made.predicted.basis == "estimated"
    assert made.predicted.source is not None
    assert "experts were not measured" in made.predicted.source


def test_measured_before_calibrated(
    plan: Plan, figures: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    from srhpm_plugin.planner.cost import predict

    calibrated = plan(draft="none").predicted
    monkeypatch.setattr(predict, "measured", lambda _: Predicted(tok_s=99.0, basis="measured"))
    made = plan(draft="none").predicted
    assert (made.tok_s, made.basis) == (99.0, "measured")
    assert made.stock_tok_s == calibrated.stock_tok_s


def test_steps_can_be_replaced(
    plan: Plan, figures: Calibration, costed: Callable[..., Any]
) -> None:
    from srhpm_plugin.hookspecs import hookimpl

    class Plugin:
        @hookimpl
        def srhpm_plan_costs(self) -> Any:
            return costed(stock=50.0)

    plugin = Plugin()
    manager = plugins().manager
    manager.register(plugin)
    try:
        predicted = plan(draft="none").predicted
    finally:
        manager.unregister(plugin)
    assert predicted.tok_s == pytest.approx(1000 / 40.5)
    assert predicted.stock_tok_s == pytest.approx(20)

"""What GPUs cost a plan: measured, or said to be assumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.backends.srhpm import SrhpmBackend
from srhpm_plugin.calibrate import Calibration, GpuSpeed
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import Draft, DraftChoice, HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost import gpus, places
from srhpm_plugin.planner.cost.gpus import GpuCosts, gpu_costs
from srhpm_plugin.planner.cost.places import CROSSING_MS
from srhpm_plugin.planner.kind import outline

CTX = 65536
DRAFTER = Draft("draft-mtp", None, n_min=3, n_max=7, p_min=0.75)
FAST = {"Q4_K": {1: 0.001, 4: 0.001, 512: 0.02}, "Q6_K": {1: 0.001, 4: 0.001, 512: 0.02}}
SLOW = {name: {m: 1e3 * ns for m, ns in table.items()} for name, table in FAST.items()}

Known = Callable[..., None]


@pytest.fixture
def machine(machines: SimpleNamespace) -> Machine:
    made: Machine = machines.make(60, gpus=[(12, 11)])
    return made


@pytest.fixture
def known(
    machine: Machine, calibration: Callable[..., Calibration], monkeypatch: pytest.MonkeyPatch
) -> Known:
    """``known(crossing_ms=..., products=...)``: this was measured of the GPU, and the CPU is as it
    is with the plan's threads."""

    def make(**changes: Any) -> None:
        speeds = {
            gpu.name: replace(
                GpuSpeed(gpu.description, gpu.total, 0.01, 0.2, 1e10, 2e10), **changes
            )
            for gpu in machine.gpus
        }
        made = calibration(machine, gpus=speeds, threads=machine.cpu.physical)
        for module in (gpus, places):
            monkeypatch.setattr(module, "current", lambda _machine: made)

    return make


def costs(model: ModelInfo, machine: Machine, draft: Draft | None = None) -> GpuCosts:
    return gpu_costs(outline(HostRequest(model.path), model, machine, "srhpm", DraftChoice(draft)))


def test_nothing_measured(models: SimpleNamespace, machine: Machine) -> None:
    found = costs(models.hybrid27, machine)
    assert found.crossing == CROSSING_MS
    assert not found.crossing_measured and not found.measured
    assert set(found.ms) == {0.0}


@pytest.mark.parametrize("missing", ["crossing_ms", "up_bytes_s"])
def test_measured_in_part(
    models: SimpleNamespace, machine: Machine, known: Known, missing: str
) -> None:
    known(**{missing: None}, products=FAST)
    found = costs(models.hybrid27, machine)
    assert (found.crossing, found.crossing_measured) == (CROSSING_MS, False)
    assert found.measured


def test_a_change_of_side_copies_the_activations(
    models: SimpleNamespace, machine: Machine, known: Known
) -> None:
    model = models.hybrid27
    known()
    for draft, tokens in ((None, 1), (DRAFTER, 4)):
        found = costs(model, machine, draft)
        assert found.crossing_measured and not found.measured
        copied = 1e3 * 4 * model.n_embd * tokens * (1 / 1e10 + 1 / 2e10) / 2
        assert found.crossing == pytest.approx(0.2 + copied)


def test_layers_by_type(models: SimpleNamespace, machine: Machine, known: Known) -> None:
    model = models.dense27
    known(products={**FAST, "Q6_K": {1: 0.003, 4: 0.003, 512: 0.02}})
    head = next(t for t in model.tensors if t.name == "output.weight")
    nbytes = sum(t.nbytes for t in model.tensors if t.layer == 9 and t.type == "Q4_K")
    found = costs(model, machine)
    assert found.ms[9] == pytest.approx(nbytes * 0.001 / 1e6, rel=0.01)
    # what was not measured costs what the others do on average
    ns = {"Q4_K": 0.001, "Q6_K": 0.003}.get(head.type, 0.002)
    assert found.ms[-1] == pytest.approx(head.nbytes * ns / 1e6)


def test_another_gpu_was_measured(models: SimpleNamespace, machine: Machine, known: Known) -> None:
    known(products=FAST)
    other = tuple(replace(gpu, description="another") for gpu in machine.gpus)
    assert not costs(models.dense27, replace(machine, gpus=other)).crossing_measured


def plan_of(
    model: ModelInfo, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> tuple[LaunchPlan, str]:
    monkeypatch.setattr(SrhpmBackend, "layer_sets", lambda self: True)
    request = HostRequest(model.path, ctx=CTX, draft="none", threads=machine.cpu.physical)
    plan = make_plan(request, model=model, machine=machine, known=(), command=False)
    return plan, " ".join(plan.reasons)


def test_it_decides(
    models: SimpleNamespace, machine: Machine, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scattered layers are worth it where changes are cheap, and not where they are slow."""
    assumed, why = plan_of(models.hybrid27, machine, monkeypatch)
    assert assumed.layer_set
    assert "0.050 ms (assumed)" in why and "type: srhpm-plugin calibrate" in why
    known(crossing_ms=0.01, products=FAST)
    cheap, why = plan_of(models.hybrid27, machine, monkeypatch)
    assert cheap.layer_set and "(measured)" in why and "assumed" not in why
    known(crossing_ms=50.0, products=FAST)
    slow, _ = plan_of(models.hybrid27, machine, monkeypatch)
    changes = [
        sum(a != b for a, b in zip(plan.layer_set, plan.layer_set[1:], strict=False))
        for plan in (cheap, slow)
    ]
    assert changes[1] <= 1 < changes[0]


def test_a_gpu_slower_than_the_cpu_gets_nothing(
    models: SimpleNamespace, machine: Machine, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    known(products=SLOW)
    plan, why = plan_of(models.dense27, machine, monkeypatch)
    assert plan.gpu_layers == 0
    assert "takes" in why and "longer than without (as measured)" in why
    known(products=FAST)
    plan, _ = plan_of(models.dense27, machine, monkeypatch)
    assert plan.gpu_layers

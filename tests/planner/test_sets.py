"""Sets of layers on GPUs: where they differ from the last ones that fit, and that they fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srhpm_plugin.backends.srhpm import SrhpmBackend
from srhpm_plugin.calibrate import Calibration
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import Draft, DraftChoice, HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost import places
from srhpm_plugin.planner.cost.places import CROSSING_MS, place_costs
from srhpm_plugin.planner.drafter import ngram_draft
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.layersets import Place, gain_of
from srhpm_plugin.planner.memory import devices_of
from srhpm_plugin.planner.outline import PlanOutline
from srhpm_plugin.planner.room import ask_memory, settle, shortage


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that places sets of layers."""
    monkeypatch.setattr(SrhpmBackend, "layer_sets", lambda self: True)


@pytest.fixture(scope="module")
def mixed(models: SimpleNamespace) -> ModelInfo:
    """Every eighth layer in a type of twice the size, as after requantizing."""
    tensors = tuple(
        replace(t, type="Q8_0", nbytes=t.nbytes * 17 // 9)
        if t.type == "Q4_K" and t.layer is not None and t.layer % 8 == 1
        else t
        for t in models.dense27.tensors
    )
    return replace(models.dense27, tensors=tensors)


def make(model: ModelInfo, machine: Machine, **asked: Any) -> LaunchPlan:
    request = HostRequest(model.path, **asked)
    return make_plan(request, model=model, machine=machine, known=(), command=False)


def placed(
    model: ModelInfo, machine: Machine, draft: Draft | None = None, **asked: Any
) -> PlanOutline:
    choice = DraftChoice(draft or ngram_draft())
    request = HostRequest(model.path, **asked)
    return settle(outline(request, model, machine, "srhpm", choice)).plan


def share(plan: PlanOutline) -> float:
    """Of a round's time, what a placement saves."""
    devices = [-1 if name == "CPU" else 0 for name in devices_of(plan)]
    total = sum(place_costs(replace(plan, cpu_moe=0)).ms)
    at = [Place(ms, 0) for ms in place_costs(plan).ms]
    if plan.cpu_moe:  # each layer on the GPU is left and entered again
        return (gain_of(devices, at, 0.0) - 2 * CROSSING_MS * devices.count(0)) / total
    return gain_of(devices, at, CROSSING_MS) / total


def tail(plan: PlanOutline, monkeypatch: pytest.MonkeyPatch) -> PlanOutline:
    with monkeypatch.context() as patch:
        patch.setattr(SrhpmBackend, "layer_sets", lambda self: False)
        return settle(replace(plan, layer_set=())).plan


def test_layers_without_a_cache_come_first(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    """At long contexts a layer with attention takes as much again for its cache."""
    plan = make(models.hybrid27, machines.make(60, gpus=[(12, 11)]), ctx=65536, draft="ngram")
    on_gpu = {i for i, at in enumerate(plan.layer_set) if at >= 0}
    assert plan.gpu_layers == len(on_gpu)
    assert all(i % 4 != 3 for i in on_gpu if i < 64)  # each fourth one has attention
    assert plan.layer_list is not None and plan.layer_list.startswith("0-2,4-6,8-10,")
    data = plan.to_json()
    assert data["layer_list"] == plan.layer_list
    cpu, gpu = data["placement"]
    assert gpu["device"] == "CUDA0" and gpu["layers"][:2] == ["0-2", "4-6"]
    assert "3" in cpu["layers"]
    (why,) = [r for r in plan.reasons if "by bytes read" in r]
    assert f"{plan.gpu_layers} of 66 layers" in why and "the last 3" in why


def test_windows(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    plan = make(models.window9, machines.desktop, ctx=65536)
    whole = {i for i in range(42) if i % 6 == 5}  # these keep all of the context
    assert {i for i, at in enumerate(plan.layer_set) if at < 0} & whole
    assert sum(plan.layer_set[i] < 0 for i in whole) >= 4


def test_experts_may_all_stay_in_ram(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    """Where the rest does not fit with all layers' caches, but with those of many."""
    plan = make(models.moe30, machines.make(60, gpus=[(4, 3.5)]), ctx=32768)
    assert plan.kind == "srhpm"
    assert plan.cpu_moe == 48 and 30 < plan.gpu_layers < 48
    assert any("layers but their experts" in reason for reason in plan.reasons)
    cpu, gpu = plan.placement
    assert "experts 0-34" in cpu.layers and "0-34" in gpu.layers


def test_like_layers_are_a_tail(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    for ctx in (4096, 65536):
        plan = make(models.dense27, machines.desktop, ctx=ctx)
        assert 0 < plan.gpu_layers < 65
        assert (plan.layer_set, plan.layer_list) == ((), None)


def test_only_where_the_server_can(
    mixed: ModelInfo, machines: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = machines.make(60, gpus=[(6, 5.4)])
    assert make(mixed, box, ctx=65536).layer_set
    assert not make(mixed, box, ctx=65536, gpu_layers=7).layer_set
    assert not make(mixed, box, ctx=65536, backend="stock").layer_set
    monkeypatch.setattr(SrhpmBackend, "layer_sets", lambda self: False)
    assert not make(mixed, box, ctx=65536).layer_set


def test_the_head_that_an_mtp_head_shares_comes_first(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    """It is read for the target and for each drafted token, and so is the MTP layer."""
    head = Draft("draft-mtp", None, n_min=3, n_max=7, p_min=0.75)
    box = machines.make(60, gpus=[(5, 4)])
    plan = placed(models.hybrid27, box, head, ctx=65536)
    bare = place_costs(replace(plan, choice=DraftChoice(ngram_draft()))).ms
    costs = place_costs(plan).ms
    assert costs[-1] == pytest.approx(4 * bare[-1])
    assert costs[64] > 0 == bare[64]
    assert devices_of(plan)[-1] == "CUDA0"


def test_costs_come_from_the_calibration(
    models: SimpleNamespace,
    machines: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
    calibration: Callable[..., Calibration],
) -> None:
    """A type that costs the CPU more per byte is worth more on the GPU."""
    known = calibration(machines.desktop)
    for by_type in known.products.values():
        by_type["Q8_0"] = {m: 3 * v for m, v in by_type["Q4_K"].items()}
    monkeypatch.setattr(places, "current", lambda machine: known)
    start = outline(
        HostRequest(models.dense27.path), models.dense27, machines.desktop, "srhpm",
        DraftChoice(None),
    )  # fmt: skip
    assert not place_costs(start).measured  # with another number of threads
    half = tuple(
        replace(t, type="Q8_0") if t.layer is not None and t.layer < 4 and t.type == "Q4_K" else t
        for t in models.dense27.tensors
    )
    plan = replace(start, threads=4, model=replace(models.dense27, tensors=half))
    costs = place_costs(plan)
    assert costs.measured
    weights = costs.ms[0] - costs.ms[9]
    assert 1.5 < costs.ms[0] / costs.ms[9] <= 3 and weights > 0
    assert settle(plan).plan.layer_set[:4] == (0, 0, 0, 0)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_it_fits_and_is_never_worse(
    data: st.DataObject,
    models: SimpleNamespace,
    mixed: ModelInfo,
    machines: SimpleNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    which = (models.dense27, models.moe30, models.hybrid27, models.window9, models.small, mixed)
    model = data.draw(st.sampled_from(which))
    sizes = data.draw(st.lists(st.floats(1, 20), min_size=1, max_size=2))
    machine = machines.make(100, gpus=[(free * 1.1, free) for free in sizes])
    ctx = data.draw(st.integers(2, 250)) * 256
    plan = placed(model, machine, ctx=ctx, parallel=data.draw(st.integers(1, 4)))
    short = shortage(ask_memory(plan), machine)
    assert all(use.device == "CPU" for use in short)
    last = tail(plan, monkeypatch)
    if not plan.layer_set:
        assert plan.gpu_layers == last.gpu_layers
        return
    assert share(plan) >= share(last) + 0.019

"""Layers on RPC workers: where it pays, and where there is no room for them here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.backends.srhpm import SrhpmBackend
from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.types import Gpu, Link, Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.room import reserve
from srhpm_plugin.planner.workers import crossing_ms

GIB = 1024**3
HERE = 20e9  # bytes a second that a machine which was not measured is assumed to read


@pytest.fixture(autouse=True)
def _server(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that places sets of layers."""
    monkeypatch.setattr(SrhpmBackend, "layer_sets", lambda self: True)


def worker(
    number: int, gib: float = 64, reads: float = HERE, trip: float = 0.3, net: float = 110e6
) -> Gpu:
    link = Link(f"10.0.0.{number + 2}:50052", trip, net, net, reads)
    free = int(gib * GIB)
    return Gpu(f"RPC{number}", "worker", free, free, "bench-rpc", link)


def beside(machine: Machine, *workers: Gpu) -> Machine:
    return replace(machine, gpus=(*machine.gpus, *workers))


def make(model: ModelInfo, machine: Machine, **asked: Any) -> LaunchPlan:
    request = HostRequest(model.path, draft=asked.pop("draft", "none"), ctx=4096, **asked)
    plan = make_plan(request, model=model, machine=machine, known=(), command=False)
    for use in plan.memory:
        assert not use.total or use.total + reserve(use.device, machine) <= use.free
    return plan


def on(plan: LaunchPlan, index: int) -> list[int]:
    return [i for i, at in enumerate(plan.layer_set) if at == index]


def why(plan: LaunchPlan, endpoint: str) -> str:
    (reason,) = [reason for reason in plan.reasons if endpoint in reason]
    return reason


def test_a_slower_worker_gets_nothing_that_fits_here(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    machine = beside(machines.make(60), worker(0, reads=HERE / 2))
    plan = make(models.dense27, machine)
    assert (plan.gpu_layers, plan.rpc, plan.layer_set) == (0, (), ())
    assert [use.device for use in plan.memory] == ["CPU"]
    assert "not used, a pass would take" in why(plan, "10.0.0.2")
    assert any("srhpm-plugin calibrate" in reason for reason in plan.reasons)


def test_a_slower_worker_gets_what_does_not_fit(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    small = machines.make(10)
    with pytest.raises(UserError):
        make(models.dense27, small)
    plan = make(models.dense27, beside(small, worker(0, reads=HERE / 2)))
    layers = on(plan, 0)
    assert layers == list(range(64 - len(layers), 64))
    assert plan.rpc == ("10.0.0.2:50052",)
    assert plan.layer_list == f"{layers[0]}-63"
    assert "no room here" in why(plan, "10.0.0.2")
    # one fewer would not do
    cpu = plan.memory[0]
    layer = plan.memory[1].weights / len(layers)
    assert cpu.total + layer + reserve("CPU", small) > cpu.free


def test_a_faster_worker_gets_all_layers_and_not_the_head(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    plan = make(models.dense27, beside(machines.make(60), worker(0, reads=4 * HERE)))
    assert on(plan, 0) == list(range(64))
    assert plan.layer_set[-1] == -1
    assert (plan.gpu_layers, plan.layer_list) == (64, "0-63")
    assert "ms less than here" in why(plan, "10.0.0.2")


def test_a_slow_network_eats_the_gain(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    far = worker(0, reads=4 * HERE, trip=900)
    plan = make(models.dense27, beside(machines.make(60), far))
    assert plan.rpc == ()
    near = replace(far, link=replace(far.link, round_trip_ms=9.0))
    assert make(models.dense27, beside(machines.make(60), near)).rpc


def test_the_fastest_comes_first_and_each_gets_one_run(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    two = worker(0, gib=5, reads=2 * HERE), worker(1, gib=6, reads=4 * HERE)
    plan = make(models.dense27, beside(machines.make(60), *two))
    slow, fast = on(plan, 0), on(plan, 1)
    assert fast == list(range(64 - len(fast), 64))
    assert slow == list(range(fast[0] - len(slow), fast[0]))
    assert len(fast) > len(slow) > 0
    assert plan.layer_list == f"{slow[0]}-{slow[-1]},{fast[0]}-{fast[-1]}@1"
    assert plan.rpc == ("10.0.0.2:50052", "10.0.0.3:50052")


def test_behind_a_gpu_of_this_machine(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    card = machines.make(60, gpus=[(8, 7.5)])
    alone = make(models.dense27, card)
    plan = make(models.dense27, beside(card, worker(0, reads=4 * HERE)))
    assert on(plan, 0) == list(range(65 - alone.gpu_layers, 65))
    assert on(plan, 1) == list(range(65 - alone.gpu_layers))
    unused = make(models.dense27, beside(card, worker(0, reads=HERE / 4)))
    assert unused.gpu_layers == alone.gpu_layers
    assert on(unused, 0) == on(plan, 0)
    assert unused.rpc == ()


def test_as_many_as_asked(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    machine = beside(machines.make(60), worker(0, reads=HERE / 9))
    plan = make(models.dense27, machine, gpu_layers=5)
    assert on(plan, 0) == list(range(59, 64))
    assert "5 layers as asked" in why(plan, "10.0.0.2")
    assert make(models.dense27, machine, gpu_layers=0).rpc == ()


def test_the_server_is_told(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    from srhpm_plugin.backends.arguments import server_argv

    card = machines.make(60, gpus=[(8, 7.5)])
    plan = make(models.dense27, beside(card, worker(0, reads=4 * HERE)))
    argv = server_argv(plan, plan.model.path)
    assert argv[argv.index("--rpc") + 1] == "10.0.0.2:50052"
    # in the order in which the set counts them
    assert argv[argv.index("--device") + 1] == "CUDA0,RPC0"


def test_what_a_crossing_takes() -> None:
    link = Link("a:1", round_trip_ms=0.5, up_bytes_s=1e8, down_bytes_s=2e8, read_bytes_s=1e10)
    assert crossing_ms(link, 5000, 4) == pytest.approx(1.0 + 0.8 + 0.4)


def test_only_a_server_that_places_sets(
    models: SimpleNamespace, machines: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SrhpmBackend, "layer_sets", lambda self: False)
    request = HostRequest(models.dense27.path, rpc=("10.0.0.2:50052",))
    with pytest.raises(UserError, match="cannot be told which layers go where"):
        make_plan(request, model=models.dense27, known=(), command=False)

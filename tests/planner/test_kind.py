"""Plan kinds and placements on machines with and without a GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.place import all_layers
from srhpm_plugin.planner.room import reserve


def planned(
    model: ModelInfo, machine: Any, known: tuple[Path, ...] = (), **asked: Any
) -> LaunchPlan:
    plan = make_plan(
        HostRequest(model.path, **asked), model=model, machine=machine, known=known, command=False
    )
    for use in plan.memory:
        assert not use.total or use.total + reserve(use.device, machine) <= use.free
    return plan


def test_no_gpu(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    plan = planned(models.dense27, machines.hybrid)
    assert (plan.kind, plan.gpu_layers) == ("srhpm", 0)
    assert plan.reasons[0].startswith("srhpm: no GPU was found")
    plan = planned(models.moe30, machines.hybrid)
    assert plan.kind == "srhpm"
    assert "8 of 128 experts" in plan.reasons[0]


def test_a_model_that_fits_is_all_on_the_gpu(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    plan = planned(models.dense27, machines.big_gpu)
    assert (plan.kind, plan.gpu_layers) == ("all-gpu", 65)
    gpu = plan.memory[1]
    assert gpu.kv and gpu.weights >= 13 * 1024**3
    assert plan.memory[0].kv == 0


def test_a_shorter_context_keeps_a_model_on_the_gpu(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    # "partial offload though it fits" (ollama#11747)
    machine = machines.make(60, gpus=[(20, 16.6)])
    plan = planned(models.dense27, machine, draft="none")
    assert (plan.kind, plan.gpu_layers) == ("all-gpu", 65)
    assert 4096 <= plan.ctx < 8192
    asked = planned(models.dense27, machine, draft="none", ctx=8192)
    assert (asked.kind, asked.ctx) == ("srhpm", 8192)
    assert asked.gpu_layers < 65


def test_a_dense_model_too_big_for_the_gpu(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    plan = planned(models.dense27, machines.desktop)
    assert plan.kind == "srhpm"
    assert 5 < plan.gpu_layers < 30
    # One more layer would not have fitted.
    gpu = plan.memory[1]
    layer = max(t.nbytes for t in models.dense27.tensors if t.layer == 0)
    assert gpu.free - reserve("CUDA0", machines.desktop) - gpu.total < 6 * layer


def test_a_small_card_gets_layers_too(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    # "0 layers on a 3.2 GiB card" (ollama#10765)
    machine = machines.make(28, gpus=[(4, 3.2)])
    assert planned(models.dense27, machine).gpu_layers > 3


def test_experts_stay_in_ram(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    plan = planned(models.moe30, machines.desktop)
    assert plan.kind == "moe"
    assert plan.gpu_layers == all_layers(models.moe30)
    assert 0 < plan.cpu_moe <= 48
    fewer = planned(models.moe30, machines.make(40, gpus=[(12, 11)]))
    assert 0 < fewer.cpu_moe < plan.cpu_moe


def test_a_card_too_small_for_the_rest_of_a_mixture(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    plan = planned(models.moe30, machines.make(40, gpus=[(2, 1.6)]))
    assert plan.kind == "srhpm"
    assert 0 <= plan.gpu_layers < all_layers(models.moe30)


def test_gpu_layers_as_the_host_asks(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    none = planned(models.dense27, machines.desktop, gpu_layers=0)
    assert (none.kind, none.gpu_layers, none.memory[1].total) == ("srhpm", 0, 0)
    some = planned(models.dense27, machines.desktop, gpu_layers=7)
    assert (some.kind, some.gpu_layers) == ("srhpm", 7)
    every = planned(models.dense27, machines.big_gpu, gpu_layers=999)
    assert (every.kind, every.gpu_layers) == ("all-gpu", 65)
    assert planned(models.dense27, machines.big_gpu, gpu_layers=-1).kind == "all-gpu"


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"arch": "bert"}, "do not generate"),
        ({"arch": "dflash"}, "is a drafter"),
        ({"tokenizer": None}, "no vocabulary"),
        ({"metadata": {"qwen3.attention.causal": False}}, "not causal"),
        ({"metadata": {"qwen3.pooling_type": 3}}, "embedding model"),
    ],
)
def test_models_left_to_the_stock_server(
    sizes: dict[str, Any], why: str, models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    model = models.make(**(models.small_sizes | sizes))
    plan = planned(model, machines.laptop)
    assert (plan.kind, plan.draft) == ("stock", None)
    assert plan.draft_off_reason is not None
    assert why in plan.draft_off_reason

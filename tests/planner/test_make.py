"""The whole plan: contract, checks, caches, replaceable steps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, LaunchPlan, Predicted
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.outline import PlacementChoice, PlanOutline
from srhpm_plugin.plugins import plugins

# docs/architecture.md; other fields may be added.
CONTRACT = {
    "kind", "model", "draft", "draft_off_reason", "placement", "memory", "predicted", "argv",
    "env", "reasons", "kernels",
}  # fmt: skip
PARTS = {
    "model": {"path", "arch", "params", "bytes", "quant_mix"},
    "draft": {"type", "path", "n_min", "n_max", "p_min"},
    "placement": {"device", "layers", "bytes"},
    "memory": {"device", "weights", "kv", "compute", "draft", "rollback", "total", "free"},
    "predicted": {"tok_s", "stock_tok_s", "pass_ms", "acceptance", "basis", "source"},
}


def make(model: Any, machine: Any, **asked: Any) -> LaunchPlan:
    return make_plan(
        HostRequest(model.path, **asked), model=model, machine=machine, known=(), command=False
    )


@pytest.mark.parametrize("which", ["dense27", "moe30", "hybrid27", "window9", "small"])
def test_the_json_contract(which: str, models: SimpleNamespace, machines: SimpleNamespace) -> None:
    data = make(getattr(models, which), machines.desktop).to_json()
    assert json.loads(json.dumps(data)) == data
    assert set(data) >= CONTRACT
    for name, keys in PARTS.items():
        value = data[name]
        for entry in value if isinstance(value, list) else [value]:
            assert set(entry) >= keys, name
    for use in data["memory"]:
        parts = ("weights", "kv", "compute", "draft", "rollback", "projector", "cache")
        assert use["total"] == sum(use[part] for part in parts)
    assert data["predicted"]["basis"] == "estimated"
    assert data["predicted"]["tok_s"] is None
    assert any("not been measured" in reason for reason in data["reasons"])


def test_off_with_a_reason(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    data = make(models.small, machines.laptop, draft="none").to_json()
    assert (data["draft"], data["draft_off_reason"]) == (None, "asked for")


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ({"ctx": 0}, "--ctx 0"),
        ({"ctx": -5}, "--ctx -5"),
        ({"ctx": 2**40}, "--ctx"),
        ({"parallel": 0}, "--parallel 0"),
        ({"parallel": 257}, "--parallel 257"),
        ({"threads": 0}, "--threads 0"),
        ({"relax": -0.1}, "--relax -0.1"),
        ({"relax": math.nan}, "--relax nan"),
        ({"relax": math.inf}, "--relax inf"),
        ({"cache_type_k": "q9_9"}, "--cache-type-k q9_9"),
        ({"cache_type_v": "F16"}, "--cache-type-v F16"),
        ({"mmproj": Path("/none/mmproj.gguf")}, "no projector"),
        ({"backend": "none such"}, "no backend 'none such'"),
    ],
)
def test_impossible_requests(
    asked: dict[str, Any], part: str, models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    with pytest.raises(UserError) as caught:
        make(models.small, machines.laptop, **asked)
    assert part in caught.value.line()


def test_heads_of_odd_length(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    odd = models.make(**(models.small_sizes | {"head": 80}))
    assert make(odd, machines.laptop, cache_type_k="bf16").cache_type_k == "bf16"
    with pytest.raises(UserError, match="80 elements"):
        make(odd, machines.laptop, cache_type_k="q8_0")


def test_context(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    assert make(models.small, machines.laptop).ctx == 8192
    short = models.make(**(models.small_sizes | {"ctx": 2048}))
    assert make(short, machines.laptop).ctx == 2048
    beyond = make(short, machines.laptop, ctx=5000)
    assert beyond.ctx == 2048
    assert any("instead of the 5000 tokens" in reason for reason in beyond.reasons)
    unknown = models.make(**(models.small_sizes | {"ctx": 0}))
    assert make(unknown, machines.laptop, ctx=5000).ctx == 5000


def test_caches_take_what_is_left(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    gib = 1024**3
    roomy = make(models.small, machines.make(64))
    assert (roomy.cache_ram_mib, roomy.ctx_checkpoints) == (2048, 0)
    some = make(models.small, machines.make(8))
    assert 300 < some.cache_ram_mib < 800
    assert make(models.small, machines.tiny, ctx=4096).cache_ram_mib == 0
    hybrid = make(models.hybrid27, machines.make(24))
    assert 0 < hybrid.ctx_checkpoints <= 8
    assert hybrid.memory[0].cache > hybrid.cache_ram_mib * 1024**2
    assert hybrid.memory[0].total < 24 * gib
    bare = make(models.hybrid27, machines.make(60), draft="none").memory[0].total
    tight = make(models.hybrid27, machines.make((bare - 2 * gib) / gib), draft="none")
    assert tight.memory[0].total < tight.memory[0].free


def test_notes_of_the_machine_are_passed_on(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    from dataclasses import replace

    noted = replace(machines.laptop, notes=("the GPU driver did not answer",))
    assert "the GPU driver did not answer" in make(models.small, noted).reasons


def test_kernels_in_words(
    packing: Callable[..., Machine], models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    def said(machine: Machine, model: ModelInfo = models.small, **asked: Any) -> tuple[str, str]:
        plan = make(model, machine, **asked)
        (why,) = (reason for reason in plan.reasons if "kernels" in reason)
        return plan.kernels, why

    setting, why = said(packing(13))
    assert setting == "speed"
    assert why.startswith("avx2 kernels: loading packs the weights")
    assert "the token table once more" in why
    assert said(packing(13), kernels="off") == ("off", "kernels off as asked: upstream's are used")
    assert said(machines.laptop)[1].startswith("no kernels for this processor")
    floats = models.make(**(models.small_sizes | {"quant": "F16"}))
    expected = ("speed", "avx2 kernels: weights stay as the file holds them")
    assert said(packing(13), floats) == expected
    setting, why = said(packing(28, gpus=[(6, 5.4)]), models.dense27)
    assert setting == "speed"
    assert why.startswith("avx2 kernels: loading packs the weights in RAM, ")
    whole = make(models.small, packing(13, gpus=[(6, 5.4)])).reasons
    assert not any("kernels" in reason for reason in whole), "no weight is multiplied by in RAM"
    assert make(models.small, packing(13), backend="stock").kernels == "off"


def test_the_environment_is_the_default(
    packing: Callable[..., Machine], models: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRHPM_KERNELS", "off")
    assert make(models.small, packing(13)).kernels == "off"
    assert make(models.small, packing(13), kernels="speed").kernels == "speed"
    monkeypatch.setenv("SRHPM_KERNELS", "")
    assert make(models.small, packing(13)).kernels == "speed"
    monkeypatch.setenv("SRHPM_KERNELS", "fast")
    with pytest.raises(UserError, match="SRHPM_KERNELS=fast"):
        make(models.small, packing(13))


def test_kernels_are_given_up_where_only_the_file_fits(
    packing: Callable[..., Machine], models: SimpleNamespace
) -> None:
    gib = 1024**3
    asked = {"draft": "none", "ctx": 4096}
    need = [
        make(models.small, packing(13), kernels=kernels, **asked).memory[0]
        for kernels in ("off", "speed")
    ]
    off, on = (use.total - use.cache for use in need)
    assert off < on
    between = packing(((off + on) / 2 + 256 * 1024**2) / gib)
    plan = make(models.small, between, **asked)
    assert plan.kernels == "off"
    assert plan.memory[0].weights == models.small.nbytes
    assert any(reason.startswith("kernels off: packed") for reason in plan.reasons)
    with pytest.raises(UserError, match="does not fit") as refused:
        make(models.small, between, kernels="speed", **asked)
    assert "--kernels speed" in refused.value.line()


@pytest.fixture
def third_party() -> Iterator[Any]:
    """Registers an object as a plugin for one test."""
    added: list[Any] = []

    def add(plugin: Any) -> None:
        added.append(plugin)
        plugins().manager.register(plugin)

    yield add
    for plugin in added:
        plugins().manager.unregister(plugin)


def test_a_plugin_replaces_one_step(
    third_party: Any, models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    class Mine:
        @hookimpl
        def srhpm_plan_placement(self, plan: PlanOutline) -> PlacementChoice | None:
            if plan.model.name != "dense-27b":
                return None
            return PlacementChoice(3, reasons=("three layers because I say so",))

        @hookimpl
        def srhpm_plan_threads(self) -> tuple[int, str]:
            return 5, "five threads"

        @hookimpl
        def srhpm_plan_predict(self, plan: LaunchPlan) -> Predicted:
            return Predicted(tok_s=4.5, stock_tok_s=2.0, basis="calibrated")

    third_party(Mine())
    plan = make(models.dense27, machines.desktop)
    assert (plan.gpu_layers, plan.threads) == (3, 5)
    assert plan.placement[1].layers == ("62-63", "output")
    assert "three layers because I say so" in plan.reasons
    assert plan.predicted.tok_s == 4.5
    assert not any("not been measured" in reason for reason in plan.reasons)
    # Where it has no answer the built-in step has.
    assert make(models.small, machines.desktop).gpu_layers == 29


def test_a_real_model_by_its_name(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machines: SimpleNamespace
) -> None:
    (tmp_path / "renamed.gguf").symlink_to(smollm2)
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path))
    plan = make_plan(HostRequest(Path("renamed")), machine=machines.laptop, command=False)
    assert plan.model.arch == "llama"
    assert plan.draft is not None
    assert plan.draft.type == "ngram"

"""What passes cost, by a made-up calibration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srhpm_plugin.calibrate import Calibration
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.packing import held_bytes
from srhpm_plugin.planner.cost import passes
from srhpm_plugin.planner.cost.passes import Unknown

FIXED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
Make = Callable[..., Calibration]


@pytest.fixture
def figures(calibration: Make, measured_machine: Machine) -> Calibration:
    return calibration(measured_machine)


def test_bytes_times_cost(models: SimpleNamespace, figures: Calibration) -> None:
    model = models.make(n_layer=2, n_embd=256, n_ff=512, heads=4, heads_kv=2, head=64, n_vocab=1024)
    products = [t for t in model.tensors if len(t.shape) == 2 and t.name != "token_embd.weight"]
    packed = sum(held_bytes(t, packed=True) for t in products)
    assert passes.weights_ms(model, figures, "ours", 1) == pytest.approx(packed * 0.05 / 1e6)
    assert passes.weights_ms(model, figures, "ours", 8) == pytest.approx(packed * 0.08 / 1e6)
    in_file = sum(t.nbytes for t in products)
    assert passes.weights_ms(model, figures, "stock", 3) == pytest.approx(in_file * 0.1 / 1e6)


def test_a_token_table_that_is_the_head(models: SimpleNamespace, figures: Calibration) -> None:
    sizes = {"n_layer": 1, "n_embd": 256, "n_ff": 512, "n_vocab": 1024, "heads": 4, "heads_kv": 2}
    own, tied = models.make(**sizes), models.make(**sizes, tied=True)
    for engine in ("ours", "stock"):
        assert passes.weights_ms(tied, figures, engine, 1) == passes.weights_ms(
            own, figures, engine, 1
        )


def test_mtp_layers_are_no_part_of_a_pass(models: SimpleNamespace, figures: Calibration) -> None:
    sizes = {"n_layer": 4, "n_embd": 256, "n_ff": 512, "n_vocab": 1024, "heads": 4, "heads_kv": 2}
    bare, mtp = models.make(**sizes), models.make(**sizes, mtp=1)
    assert passes.pass_ms(mtp, figures, "ours", 1, 64) == passes.pass_ms(
        bare, figures, "ours", 1, 64
    )
    head = passes.mtp_pass_ms(mtp, figures, "ours", 1, 64)
    assert 0 < head < passes.pass_ms(mtp, figures, "ours", 1, 64)


def test_attention(models: SimpleNamespace, figures: Calibration) -> None:
    model = models.make(n_layer=3, heads=4, heads_kv=2, head=64)
    found = passes.attention_ms(model, figures, "ours", 4, 1000)
    assert found == pytest.approx(3 * 1000 * 64 * (0.02 * 4 * 4 + 0.02 * 2) / 1e6)


def test_a_window_limits_it(models: SimpleNamespace, figures: Calibration) -> None:
    model = models.window9
    near = passes.attention_ms(model, figures, "ours", 1, 1024)
    far = passes.attention_ms(model, figures, "ours", 1, 2048)
    full = model.n_layer - len(model.window_layers)
    assert far - near == pytest.approx(near * full / model.n_layer)


def test_types_without_kernels_cost_what_upstreams_do(
    models: SimpleNamespace, figures: Calibration
) -> None:
    model = models.make(n_layer=1)
    odd = replace(model, tensors=tuple(replace(t, type="IQ1_S") for t in model.tensors))
    with pytest.raises(Unknown, match="IQ1_S"):
        passes.weights_ms(odd, figures, "ours", 1)
    known = {**figures.products["stock"], "IQ1_S": {1: 0.3, 2: 0.6, 4: 1.2, 8: 2.4}}
    more = replace(figures, products={**figures.products, "stock": known})
    ours = passes.weights_ms(odd, more, "ours", 1)
    assert ours == passes.weights_ms(odd, more, "stock", 1)


def test_experts(models: SimpleNamespace, figures: Calibration) -> None:
    assert passes.experts_touched(128, 8, 1) == pytest.approx(8)
    assert passes.experts_touched(128, 8, 2) == pytest.approx(15.5)
    assert passes.experts_touched(8, 8, 5) == pytest.approx(8)
    model = models.moe30
    one = passes.weights_ms(model, figures, "ours", 1)
    everything = replace(model, n_expert_used=model.n_expert)
    assert one < passes.weights_ms(everything, figures, "ours", 1) / 5
    assert passes.weights_ms(model, figures, "ours", 2) > one


@FIXED
@given(m=st.integers(1, 15), ctx=st.integers(0, 100_000), more=st.integers(1, 50_000))
def test_more_is_never_cheaper(
    models: SimpleNamespace, figures: Calibration, m: int, ctx: int, more: int
) -> None:
    for model in (models.small, models.moe30, models.window9):
        for engine in ("ours", "stock"):
            here = passes.pass_ms(model, figures, engine, m, ctx)
            assert passes.pass_ms(model, figures, engine, m + 1, ctx) >= here
            assert passes.pass_ms(model, figures, engine, m, ctx + more) >= here
    larger = models.make("/models/larger.gguf", **{**models.small_sizes, "n_layer": 29})
    assert passes.pass_ms(larger, figures, "ours", m, ctx) > passes.pass_ms(
        models.small, figures, "ours", m, ctx
    )

"""Which type each tensor gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srhpm_plugin.calibrate.data import Calibration
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.packing import PACKED
from srhpm_plugin.requantize.errors import ERRORS, SENSITIVITY, kind_of
from srhpm_plugin.requantize.mix import Mix, choose, pass_ms
from srhpm_plugin.requantize.reading import WIDTHS, Reading, as_type, bits, reading
from srhpm_plugin.requantize.run import type_lines

ModelOf = Callable[..., ModelInfo]
TABLE = reading(None)


def types(mix: Mix) -> dict[str, str]:
    return {t.name: t.type for t in mix.after}


def all_in(model: ModelInfo, name: str) -> ModelInfo:
    """The model with every matrix that may change in one type."""
    tensors = tuple(
        (as_type(t, name) or t) if kind_of(t.name) and len(t.shape) > 1 else t
        for t in model.tensors
    )
    return replace(model, tensors=tensors)


@pytest.mark.parametrize("like", [name for name in ERRORS if name in PACKED])
@pytest.mark.parametrize("costs", [TABLE, None], ids=["cpu", "size"])
def test_within_the_loss_and_cheaper_than_the_reference(
    like: str, costs: Reading | None, model_of: ModelOf
) -> None:
    model = model_of()
    mix = choose(model, like, reading=costs)
    assert 0 < mix.loss <= mix.allowed * (1 + 1e-9)
    uniform = all_in(model, like).tensors
    if costs is None:
        assert sum(t.nbytes for t in mix.after) <= sum(t.nbytes for t in uniform)
    else:
        ours, theirs = pass_ms(mix.after, model, costs), pass_ms(uniform, model, costs)
        # The token table weighs a little too, as it is held and not read.
        assert sum(ours.values()) <= 1.01 * sum(theirs.values())
    for old, new in zip(mix.before, mix.after, strict=True):
        assert bits(new.type) <= bits(old.type)
        assert (old.name, old.shape) == (new.name, new.shape)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(ns=st.dictionaries(st.sampled_from(sorted(PACKED)), st.floats(0.01, 10), min_size=2))
def test_any_costs(ns: dict[str, float], model_of: ModelOf) -> None:
    known = {name: dict.fromkeys(WIDTHS, value) for name, value in ns.items()}
    model = model_of()
    mix = choose(model, "Q4_K", reading=Reading(known, "made up", True))
    assert mix.loss <= mix.allowed * (1 + 1e-9)
    chosen = {b.type for a, b in zip(mix.before, mix.after, strict=True) if a.type != b.type}
    assert chosen <= ns.keys(), "only types whose cost is known"


def test_types_that_are_read_alike_give_way_to_the_better_one(model_of: ModelOf) -> None:
    """Our kernels hold IQ3_S in as many bits as IQ4_XS, which loses a fifth of what it does; in a
    file IQ4_XS is the larger one."""
    model = model_of(width=1024)
    pair = {name: TABLE.ns[name] for name in ("IQ3_S", "IQ4_XS")}
    mix = choose(model, "IQ3_S", reading=replace(TABLE, ns=pair))
    assert set(types(mix).values()) <= {"IQ4_XS", "F32"}
    assert mix.loss < 0.3 * mix.allowed


def test_a_slow_type_is_avoided(model_of: ModelOf) -> None:
    def costs(q4_k: float) -> Reading:
        return Reading(
            {"Q4_K": dict.fromkeys(WIDTHS, q4_k), "Q5_K": {1: 1.0, 4: 1.0}}, "made up", True
        )

    assert "Q4_K" in types(choose(model_of(), "Q4_K", reading=costs(1.0))).values()
    assert "Q4_K" not in types(choose(model_of(), "Q4_K", reading=costs(5.0))).values()


def test_what_must_stay_stays(model_of: ModelOf) -> None:
    model = model_of(experts=4)
    mix = choose(model, "Q3_K", reading=TABLE)
    for old, new in zip(mix.before, mix.after, strict=True):
        if len(old.shape) == 1 or "ffn_gate_inp" in old.name:
            assert old == new
        else:
            assert new.type != "F16", old.name


def test_rows_that_are_no_whole_blocks(model_of: ModelOf) -> None:
    mix = choose(model_of(width=96), "Q4_0", reading=TABLE)
    changed = {b.type for a, b in zip(mix.before, mix.after, strict=True) if a.type != b.type}
    assert changed
    assert changed <= {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"}


def test_nothing_is_made_larger_or_twice_as_bad(model_of: ModelOf) -> None:
    """A model in the reference's type has nothing to lose."""
    model = all_in(model_of(), "Q4_K")
    mix = choose(model, "Q4_K", reading=TABLE)
    assert (mix.changed, mix.loss, mix.allowed) == (0, 0.0, 0.0)


def test_a_tied_table_counts_as_the_head(model_of: ModelOf) -> None:
    tied, own = model_of(tied=True), model_of(tied=False)
    assert pass_ms(tied.tensors, tied, TABLE) == pass_ms(own.tensors, own, TABLE)


def test_experts_count_as_far_as_they_are_read(model_of: ModelOf) -> None:
    model = model_of(experts=8)
    matrix = 2 * 256 * 256
    per_layer = 4 * matrix + 3 * matrix * 2 + 4 * 256 * 8  # two of eight experts, and the router
    found = pass_ms(model.tensors, model, Reading({"F16": {1: 1.0, 4: 2.0}}, "", True))
    total = 2 * per_layer + 2 * 64 * 256 + 4 * 256 * 3  # the norms
    assert found[1] == pytest.approx(total / 1e6)
    assert found[4] == pytest.approx(2 * total / 1e6)


def test_every_matrix_is_named_once(model_of: ModelOf) -> None:
    model = model_of(layers=12)
    lines = type_lines(choose(model, "Q4_K", reading=TABLE)).splitlines()
    rules = [line.rsplit("=", 1) for line in lines]
    for t in model.tensors:
        found = [kind for pattern, kind in rules if re.search(pattern, t.name)]
        assert len(found) == (len(t.shape) > 1 and t.name != "token_embd.weight"), t.name


def test_the_measured_costs_come_first() -> None:
    table = {1: 0.5, 2: 0.6, 4: 0.7, 8: 0.9}
    rest = dict.fromkeys(("attention", "passes", "serving"))
    found = reading(
        Calibration({}, 0, 0, None, 4, (), {"ours": {"Q4_K": table}, "stock": {}}, **rest)  # type: ignore[arg-type]
    )
    assert (found.measured, found.ns) == (True, {"Q4_K": {1: 0.5, 4: 0.7}})
    assert not TABLE.measured
    assert "another machine" in TABLE.basis


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("blk.3.ffn_down.weight", "ffn_down"),
        ("blk.3.ffn_down_exps.weight", "ffn_down"),
        ("blk.3.ffn_up_shexp.weight", "ffn_up"),
        ("blk.3.attn_qkv.weight", "attn_v"),
        ("output.weight", "output"),
        ("token_embd.weight", "token_embd"),
        ("blk.3.ffn_gate_inp.weight", None),
        ("blk.3.ssm_conv1d.weight", None),
        ("blk.3.attn_q.bias", None),
        ("output_norm.weight", None),
    ],
)
def test_kinds(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_the_tables_are_whole() -> None:
    assert all(0 < error < 0.2 for error in ERRORS.values())
    assert all(value > 0 for value in SENSITIVITY.values())
    # More bits lose less, within one family.
    for family in (("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"), ("Q4_0", "Q5_0", "Q8_0")):
        values = [ERRORS[name] for name in family]
        assert values == sorted(values, reverse=True)

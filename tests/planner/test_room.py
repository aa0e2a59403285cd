"""What fits, the largest context that does, and the words for what does not."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srhpm_plugin.errors import UserError
from srhpm_plugin.plan import DraftChoice, HostRequest
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.drafter import ngram_draft
from srhpm_plugin.planner.kind import choose_kind, outline
from srhpm_plugin.planner.room import largest_ctx, reserve, settle


@settings(max_examples=40, deadline=None)
@given(
    which=st.sampled_from(("dense27", "moe30", "hybrid27", "window9", "small")),
    room=st.tuples(st.floats(1, 60), st.one_of(st.none(), st.floats(0.5, 30))),
    parallel=st.integers(1, 4),
)
def test_the_largest_context_fits_and_the_next_does_not(
    which: str,
    room: tuple[float, float | None],
    parallel: int,
    models: SimpleNamespace,
    machines: SimpleNamespace,
) -> None:
    ram, vram = room
    model = getattr(models, which)
    machine = machines.make(ram, gpus=[] if vram is None else [(vram * 1.1, vram)])
    request = HostRequest(model.path, parallel=parallel)
    kind, _ = choose_kind(request, model, machine)
    plan = outline(request, model, machine, kind, DraftChoice(ngram_draft()))
    limit = 65536
    best = largest_ctx(plan, limit)
    if best is None:
        assert settle(replace(plan, ctx=512)).short
        return
    assert 512 <= best <= limit
    assert best % 256 == 0
    placed = settle(replace(plan, ctx=best))
    assert not placed.short
    for use in placed.memory:
        assert not use.total or use.total + reserve(use.device, machine) <= use.free
    if best < limit:
        assert settle(replace(plan, ctx=best + 256)).short


def test_refused_with_the_largest_context_that_fits(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    machine = machines.make(20)
    asked = HostRequest(models.dense27.path, ctx=65536, draft="ngram", threads=4)
    with pytest.raises(UserError) as caught:
        make_plan(asked, model=models.dense27, machine=machine, known=(), command=False)
    line = caught.value.line()
    assert "dense-27b.gguf does not fit" in line
    assert "context of 65536" in line
    assert "20.00 GiB are free" in line
    found = re.search(r"largest context that fits is (\d+): (srhpm-plugin plan .*)", line)
    assert found, line
    # The command repeats what was asked for, and what it asks for fits.
    words = shlex.split(found[2])
    assert words[2:] == [
        str(models.dense27.path), "--draft", "ngram", "--ctx", found[1], "--threads", "4",
    ]  # fmt: skip
    again = replace(asked, ctx=int(found[1]))
    plan = make_plan(again, model=models.dense27, machine=machine, known=(), command=False)
    assert plan.ctx == int(found[1])
    with pytest.raises(UserError):
        make_plan(
            replace(asked, ctx=int(found[1]) + 256),
            model=models.dense27,
            machine=machine,
            known=(),
            command=False,
        )


def test_nothing_fits(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    with pytest.raises(UserError) as caught:
        make_plan(
            HostRequest(models.dense27.path),
            model=models.dense27,
            machine=machines.laptop,
            known=(),
            command=False,
        )
    line = caught.value.line()
    assert "not even a context of 512 fits" in line
    # A size to look for: what is free less the KV and buffers of that context and the reserve.
    size = re.search(r"of at most ([\d.]+) GiB \(this one is Q4_K, ([\d.]+) GiB\)", line)
    assert size, line
    assert 11.5 < float(size[1]) < 13 < float(size[2])


def test_fewer_slots_are_offered(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    with pytest.raises(UserError, match="one slot with a context of") as caught:
        make_plan(
            HostRequest(models.dense27.path, parallel=64, draft="none"),
            model=models.dense27,
            machine=machines.make(18),
            known=(),
            command=False,
        )
    assert "--parallel" not in str(caught.value.do)


def test_leaving_the_drafter_out_is_offered(
    models: SimpleNamespace, machines: SimpleNamespace, headers: object
) -> None:
    big = models.make("/models/drafter.gguf", n_layer=30)
    path = headers(big)  # type: ignore[operator]
    request = HostRequest(models.dense27.path, draft=str(path))
    from srhpm_plugin.planner import drafter

    choice = drafter.DraftChoice(drafter.model_draft(path), model=big)
    plan = outline(request, models.dense27, machines.make(18), "srhpm", choice)
    from srhpm_plugin.planner.refusal import refusal

    error = refusal(settle(plan))
    assert "without the drafter a context of" in error.line()
    assert "--draft ngram" in error.line()


def test_too_many_gpu_layers_asked_for(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    with pytest.raises(UserError, match="CUDA0") as caught:
        make_plan(
            HostRequest(models.dense27.path, gpu_layers=60, draft="none"),
            model=models.dense27,
            machine=machines.desktop,
            known=(),
            command=False,
        )
    assert "leave the number of GPU layers open" in caught.value.line()


def test_a_context_nobody_asked_for_shrinks(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    machine = machines.make(16)
    plan = make_plan(
        HostRequest(models.dense27.path, draft="none"),
        model=models.dense27,
        machine=machine,
        known=(),
        command=False,
    )
    assert 512 <= plan.ctx < 8192
    assert any(f"context cut from 8192 to {plan.ctx}" in r for r in plan.reasons)
    use = plan.memory[0]
    assert use.total + reserve("CPU", machine) <= use.free

"""Bytes per part and device, against sums done by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import DraftChoice, HostRequest
from srhpm_plugin.planner.drafter import N_MAX, choose_draft, model_draft
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.memory import layer_devices, memory, ranges
from srhpm_plugin.planner.outline import PlanOutline
from srhpm_plugin.planner.place import all_layers
from srhpm_plugin.planner.rollback import Rollback, rollback
from srhpm_plugin.planner.room import put
from srhpm_plugin.planner.weights import bytes_per_token, trunk_bytes, weight_map

NONE = DraftChoice(None, off_reason="asked for")


def plan(
    model: ModelInfo,
    machine: Machine,
    choice: DraftChoice = NONE,
    *,
    gpu_layers: int = 0,
    cpu_moe: int = 0,
    device: str = "CPU",
    **asked: Any,
) -> PlanOutline:
    request = HostRequest(model.path, **asked)
    bare = outline(request, model, machine, "srhpm", choice)
    return put(bare, gpu_layers, cpu_moe, device)


def test_kv_of_every_type(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    # 64 layers, 8 heads of 128 for K and for V, 4096 cells.
    elements = 2 * 64 * 8 * 128 * 4096
    f16 = memory(plan(models.dense27, machines.laptop, ctx=4096))[0].kv
    assert f16 == 2 * elements
    asked = {"ctx": 4096, "cache_type_k": "q8_0", "cache_type_v": "q4_0"}
    mixed = memory(plan(models.dense27, machines.laptop, **asked))[0].kv
    assert mixed == elements // 2 * 34 // 32 + elements // 2 * 18 // 32


def test_slots_have_their_own_context(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    one = memory(plan(models.dense27, machines.laptop, ctx=4000))[0]
    four = memory(plan(models.dense27, machines.laptop, ctx=4000, parallel=4))[0]
    assert four.kv == 4 * one.kv
    assert four.weights == one.weights


def test_windows_bound_the_cache(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    model = models.window9
    row = 2 * 2 * 8 * 128
    kv = memory(plan(model, machines.laptop, ctx=32768))[0].kv
    # 35 layers keep a window of 1024 and a micro-batch of 512, seven keep everything.
    assert kv == row * (35 * 1536 + 7 * 32768)
    assert memory(plan(replace(model, window_layers=()), machines.laptop, ctx=32768))[0].kv > 4 * kv


def test_latent_attention_keeps_one_row(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    model = models.make(
        arch="deepseek2", heads_kv=1, head=576, metadata={"deepseek2.attention.key_length_mla": 192}
    )
    assert memory(plan(model, machines.laptop, ctx=1024))[0].kv == 64 * 1024 * 576 * 2


def test_hybrid_state_and_rollback(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    model = models.hybrid27
    state = 48 * 4 * (3 * (2 * 16 * 128 + 6144) + 6144 * 128)
    attention = 16 * 2 * 2 * 4 * 128 * 2048
    bare = memory(plan(model, machines.laptop, ctx=2048))[0]
    assert bare.kv == attention + state
    assert bare.rollback == 0
    request = HostRequest(model.path, ctx=2048)
    mtp = memory(plan(model, machines.laptop, choose_draft(request, model, ()), ctx=2048))[0]
    assert mtp.rollback == N_MAX * state
    # The issue that rollback copies evict layers is one of this size.
    assert mtp.rollback > 900 * 1024**2
    ngram = DraftChoice(replace(model_draft(model.path), type="ngram", path=None))
    asked: dict[str, Any] = {"ctx": 2048, "parallel": 2}
    planes = memory(plan(model, machines.laptop, ngram, **asked))[0]
    assert planes.rollback == 2 * N_MAX * state
    copies = memory(replace(plan(model, machines.laptop, ngram, **asked), rollback="copy"))[0]
    assert copies.rollback == 2 * state
    stock = memory(plan(model, machines.laptop, ngram, backend="stock", **asked))[0]
    assert stock.rollback == 2 * state


@pytest.mark.parametrize(
    ("arch", "kind", "n_max", "kept"),
    [
        ("qwen3next", "ngram", 7, Rollback(planes=7)),
        ("qwen3next", "draft-simple", 3, Rollback(planes=3)),
        ("qwen35moe", "draft-simple", 16, Rollback(planes=8, copies=1)),
        ("qwen35moe", "ngram", 16, Rollback(copies=1)),
        ("jamba", "ngram", 7, Rollback(copies=1)),
    ],
)
def test_what_a_slot_keeps(
    models: SimpleNamespace,
    machines: SimpleNamespace,
    arch: str,
    kind: Any,
    n_max: int,
    kept: Rollback,
) -> None:
    model = replace(models.hybrid27, arch=arch)
    draft = replace(model_draft(model.path), type=kind, n_max=n_max)
    outline = plan(model, machines.laptop, DraftChoice(draft))
    assert rollback(outline) == kept
    assert rollback(replace(outline, model=replace(model, recurrent=None))) == Rollback()


def test_the_environment_leaves_rollback_to_upstream(
    models: SimpleNamespace, machines: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = replace(models.hybrid27, arch="qwen3next")
    outline = plan(model, machines.laptop, DraftChoice(model_draft(model.path)))
    for value in ("off", "copy"):
        monkeypatch.setenv("SRHPM_ROLLBACK", value)
        assert rollback(outline) == Rollback(copies=1)


def test_mtp_layers_count_only_when_they_draft(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    model = models.hybrid27
    head = sum(t.nbytes for t in model.tensors if t.layer == model.n_layer)
    assert trunk_bytes(model) == model.nbytes - head
    assert memory(plan(model, machines.laptop))[0].weights == model.nbytes - head
    choice = choose_draft(HostRequest(model.path), model, ())
    assert choice.draft is not None
    assert choice.draft.type == "draft-mtp"
    assert memory(plan(model, machines.laptop, choice))[0].draft > head


def test_weights_are_held_once_whatever_the_placement(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    for model in (models.dense27, models.moe30, models.window9):
        for layers in (0, 1, 10, all_layers(model)):
            for cpu_moe in (0, 5, model.n_layer):
                p = plan(model, machines.two_gpus, gpu_layers=layers, cpu_moe=cpu_moe)
                assert sum(u.weights for u in memory(p)) == model.nbytes
                assert sum(place.nbytes for place in p.placement) == model.nbytes
                by_device = {u.device: u.weights for u in memory(p)}
                for place in p.placement:
                    assert by_device[place.device] == place.nbytes


def test_a_tied_head_is_copied_to_the_gpu(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    model = models.small
    table = next(t.nbytes for t in model.tensors if t.name == "token_embd.weight")
    cpu = memory(plan(model, machines.desktop))
    gpu = memory(plan(model, machines.desktop, gpu_layers=1))
    assert sum(u.weights for u in cpu) == model.nbytes
    assert sum(u.weights for u in gpu) == model.nbytes + table


def test_packed_weights(
    packing: Callable[..., Machine], models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    roomy = packing(60)
    for model in (models.dense27, models.moe30):
        table = next(t.nbytes for t in model.tensors if t.name == "token_embd.weight")
        vectors = sum(t.nbytes for t in model.tensors if t.type == "F32")
        # Q4_K has 6-bit scales and mins in the file, 8-bit ones as packed: 4.625 bits for 4.5.
        packed = (model.nbytes - table - vectors) * 4.625 / 4.5
        p = plan(model, roomy)
        assert memory(p)[0].weights == table + vectors + packed
        assert p.placement[0].nbytes == memory(p)[0].weights
        off = memory(plan(model, roomy, kernels="off"))[0]
        assert off.weights == model.nbytes
        assert off == replace(memory(plan(model, machines.laptop))[0], free=off.free)


def test_a_tied_head_is_packed_beside_its_table(
    packing: Callable[..., Machine], models: SimpleNamespace
) -> None:
    model = models.small
    table = next(t.nbytes for t in model.tensors if t.name == "token_embd.weight")
    held = memory(plan(model, packing(13)))[0].weights
    assert held == trunk_bytes(model, packed=True)
    rest = model.nbytes - table
    assert held > table + rest + table * 4.625 / 4.5
    # Read for each token is only the copy.
    assert bytes_per_token(model, packed=True) == held - table
    floats = models.make(**(models.small_sizes | {"quant": "F16"}))
    assert memory(plan(floats, packing(13)))[0].weights == floats.nbytes
    assert bytes_per_token(floats, packed=True) == floats.nbytes


def test_packed_beside_a_gpu(packing: Callable[..., Machine], models: SimpleNamespace) -> None:
    """What stays in RAM is packed, what a GPU holds is as in the file; so for a drafter."""
    box, small = packing(28, gpus=[(6, 5.4)]), models.small
    choice = DraftChoice(model_draft(small.path), model=small)
    ram, gpu = memory(plan(models.dense27, box, choice, gpu_layers=10))
    off_ram, off_gpu = memory(plan(models.dense27, box, choice, gpu_layers=10, kernels="off"))
    assert off_ram.weights + off_gpu.weights == models.dense27.nbytes
    assert gpu == off_gpu
    in_file, packed = weight_map(models.dense27), weight_map(models.dense27, packed=True)
    layers = models.dense27.n_layer + 1 - 10  # the head is the first on the GPU
    extra = sum(packed.layers[:layers]) - sum(in_file.layers[:layers])
    assert ram.weights - off_ram.weights == extra > 0
    extra = trunk_bytes(small, packed=True) - trunk_bytes(small)
    assert ram.draft - off_ram.draft == extra > 0
    ram, gpu = memory(plan(models.dense27, box, choice, gpu_layers=10, device="CUDA0"))
    off_ram, off_gpu = memory(
        plan(models.dense27, box, choice, gpu_layers=10, device="CUDA0", kernels="off")
    )
    assert (gpu, ram.draft) == (off_gpu, off_ram.draft)


def test_experts_in_ram_are_packed(
    packing: Callable[..., Machine], models: SimpleNamespace
) -> None:
    model, box = models.moe30, packing(60, gpus=[(8, 7.5)])
    layers, moe = all_layers(model), 3
    p = plan(model, box, gpu_layers=layers, cpu_moe=moe)
    ram, gpu = memory(p)
    off_ram, off_gpu = memory(plan(model, box, gpu_layers=layers, cpu_moe=moe, kernels="off"))
    experts = sum(weight_map(model).experts[:moe])
    assert ram.weights - off_ram.weights == pytest.approx(experts * (4.625 / 4.5 - 1))
    assert gpu == off_gpu
    assert [use.nbytes for use in p.placement] == [ram.weights, gpu.weights]


def test_experts_on_the_cpu(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    model = models.moe30
    experts = sum(t.nbytes for t in model.tensors if "_exps." in t.name)
    p = plan(model, machines.desktop, gpu_layers=all_layers(model), cpu_moe=model.n_layer)
    cpu, gpu = memory(p)
    assert gpu.weights < 0.1 * experts
    assert cpu.weights >= experts
    assert gpu.kv > 0
    assert cpu.kv == 0
    assert p.placement[0].layers == ("embd", "experts 0-47")
    assert p.placement[1].layers == ("0-47", "output")


def test_the_gpu_has_room_for_weights_that_visit_it(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    for model, cpu_moe in ((models.dense27, 0), (models.moe30, 48)):
        whole = all_layers(model)
        alone = memory(plan(model, machines.desktop, gpu_layers=whole))
        part = memory(
            plan(model, machines.desktop, gpu_layers=whole if cpu_moe else 30, cpu_moe=cpu_moe)
        )
        largest = max(t.nbytes for t in model.tensors if t.layer == 0)
        assert part[1].compute > alone[1].compute + 0.3 * largest
        # The GPU computes prompts, so the CPU needs no more than room to hand over.
        assert part[0].compute < 1.1 * alone[0].compute
        assert memory(plan(model, machines.laptop))[0].compute > 2 * part[0].compute


def test_the_gpu_has_room_for_a_cache_that_visits_it(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    part = memory(plan(models.dense27, machines.desktop, gpu_layers=30, ctx=65536))[1]
    whole = memory(plan(models.dense27, machines.desktop, gpu_layers=65, ctx=65536))[1]
    layer = 65536 * 2 * 2 * 8 * 128  # K and V of eight heads of 128, f16
    assert part.compute > layer > whole.compute


def test_kv_follows_its_layer(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    cpu, gpu = memory(plan(models.dense27, machines.desktop, gpu_layers=17, ctx=4096))
    assert gpu.kv * 3 == cpu.kv  # 16 of 64 layers; the 17th is the head


def test_a_drafter_counts_where_it_lies(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    small = models.small
    choice = DraftChoice(model_draft(small.path), model=small)
    on_cpu = memory(plan(models.dense27, machines.desktop, choice))
    assert on_cpu[0].draft > small.nbytes
    assert on_cpu[1].draft == 0
    on_gpu = memory(plan(models.dense27, machines.desktop, choice, device="CUDA0"))
    assert on_gpu[1].draft > small.nbytes
    # Only the token table and the logits stay behind.
    assert on_gpu[0].draft < 0.3 * on_cpu[0].draft


def test_a_projector_is_counted(
    models: SimpleNamespace, machines: SimpleNamespace, tmp_path: Any
) -> None:
    projector = tmp_path / "mmproj.gguf"
    projector.write_bytes(bytes(1_000_000))
    use = memory(plan(models.dense27, machines.laptop, mmproj=projector))[0]
    assert use.projector > 1_000_000
    cpu, gpu = memory(plan(models.dense27, machines.desktop, gpu_layers=5, mmproj=projector))
    assert (cpu.projector, gpu.projector) == (0, use.projector)


def test_layers_are_split_by_free_memory(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    at = layer_devices(models.dense27, machines.two_gpus.gpus, 37)
    assert at[:28] == ["CPU"] * 28
    assert at[28:] == ["CUDA0"] * 15 + ["CUDA1"] * 22  # 37 * 7.5 / 18.5 = 15.0


def test_bytes_per_token(models: SimpleNamespace) -> None:
    dense, moe = models.dense27, models.moe30
    table = next(t.nbytes for t in dense.tensors if t.name == "token_embd.weight")
    assert bytes_per_token(dense) == dense.nbytes - table
    experts = sum(t.nbytes for t in moe.tensors if "_exps." in t.name)
    rest = sum(t.nbytes for t in moe.tensors if "_exps." not in t.name and "embd" not in t.name)
    assert bytes_per_token(moe) == pytest.approx(rest + experts * 8 / 128, rel=1e-6)
    assert bytes_per_token(models.small) == models.small.nbytes


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ()), ([3], ("3",)), ([0, 1, 2, 5], ("0-2", "5")), ([1, 3, 4], ("1", "3-4"))],
)
def test_ranges(numbers: list[int], text: tuple[str, ...]) -> None:
    assert ranges(numbers) == text


def test_placement_names(models: SimpleNamespace, machines: SimpleNamespace) -> None:
    places = plan(models.dense27, machines.desktop, gpu_layers=3).placement
    assert [(p.device, p.layers) for p in places] == [
        ("CPU", ("embd", "0-61")),
        ("CUDA0", ("62-63", "output")),
    ]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_more_context_never_takes_less(
    data: st.DataObject, models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    model = data.draw(
        st.sampled_from((models.dense27, models.moe30, models.hybrid27, models.window9))
    )
    less, more = sorted((data.draw(st.integers(1, 200_000)), data.draw(st.integers(1, 200_000))))
    layers = data.draw(st.integers(0, all_layers(model)))
    parallel = data.draw(st.integers(1, 8))
    choice = choose_draft(HostRequest(model.path), model, ())
    p = plan(model, machines.two_gpus, choice, gpu_layers=layers, parallel=parallel)
    for a, b in zip(memory(replace(p, ctx=less)), memory(replace(p, ctx=more)), strict=True):
        assert a.weights == b.weights
        assert a.total <= b.total

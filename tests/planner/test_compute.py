"""The sizes the planner computes are those the real server logs for the same model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model
from srhpm_plugin.machine.isa import host_isa
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.plan import DraftChoice, HostRequest
from srhpm_plugin.planner.compute import compute_bytes, output_bytes
from srhpm_plugin.planner.drafter import N_MAX, choose_draft
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.memory import memory
from srhpm_plugin.planner.room import RAM_RESERVE

pytestmark = pytest.mark.server

MIB = 1024**2
Sizes = Callable[..., dict[str, list[float]]]

# The formula is exact where one stage decides; where the server's allocator finds a hole for a
# stage it stays below. It must never be below what is taken by more than the rounding of the log.
BELOW = 0.02
ABOVE = 0.35

SMALL = {"n_embd": 512, "n_ff": 1024, "heads": 8, "heads_kv": 2, "head": 64, "n_vocab": 4000}
SHAPES: dict[str, dict[str, Any]] = {
    "dense": {**SMALL, "arch": "llama"},
    "wide attention": {**SMALL, "arch": "qwen3", "n_ff": 512, "heads": 32, "heads_kv": 32},
    "experts": {**SMALL, "arch": "qwen3moe", "experts": 16, "used": 8, "ff_exp": 256},
    "many small experts": {**SMALL, "arch": "qwen3moe", "experts": 32, "used": 8, "ff_exp": 96},
    "windows": {**SMALL, "arch": "gemma3", "n_layer": 12, "window": 512, "window_every": 6},
    "hybrid": {**SMALL, "arch": "qwen35", "n_layer": 4, "head": 128, "ssm_inner": 4096},
}


@pytest.fixture
def here(machines: Any) -> Machine:
    """Room as on a laptop, and this machine's own processor, which the server will run on."""
    made: Machine = machines.make(13, isa=host_isa())
    return made


def planned(path: Path, machine: Machine, **asked: Any) -> dict[str, int]:
    """The CPU's parts as the planner counts them, drafter chosen without other models."""
    request = HostRequest(path, **asked)
    model = read_model(path)
    choice = choose_draft(request, model, ())
    plan = outline(request, model, machine, "srhpm", choice)
    return vars(memory(plan)[0])


def close(real: float, counted: int) -> bool:
    return real * (1 - BELOW) - MIB / 50 <= counted <= real * (1 + ABOVE)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ctx", [512, 6000])
def test_buffers_of_many_shapes(
    shape: str, ctx: int, zero_gguf: Callable[..., Path], server_sizes: Sizes, machines: Any
) -> None:
    path = zero_gguf(shape.replace(" ", "-"), **SHAPES[shape])
    real = server_sizes(path, "-c", str(ctx), "-np", "1", "--no-warmup")
    counted = planned(path, machines.laptop, ctx=ctx, draft="none")
    assert counted["kv"] == pytest.approx(sum(real["KV"]) + sum(real["RS"]), rel=0.01, abs=MIB / 50)
    assert counted["weights"] == pytest.approx(sum(real["model"]), rel=0.01)
    assert close(real["compute"][0], counted["compute"]), (real["compute"], counted["compute"])


@pytest.mark.parametrize(("ctx", "parallel"), [(512, 1), (4096, 1), (8192, 1), (1000, 3)])
def test_buffers_of_a_real_model(
    ctx: int, parallel: int, smollm2: Path, server_sizes: Sizes, machines: Any
) -> None:
    total = str(ctx * parallel)
    real = server_sizes(smollm2, "-c", total, "-np", str(parallel), "--no-warmup")
    counted = planned(smollm2, machines.laptop, ctx=ctx, parallel=parallel, draft="none")
    assert counted["kv"] == pytest.approx(sum(real["KV"]), rel=0.001)
    assert counted["compute"] == pytest.approx(real["compute"][0], rel=0.05)


def test_logits_of_a_large_vocabulary_and_many_slots(
    zero_gguf: Callable[..., Path], server_sizes: Sizes, machines: Any
) -> None:
    path = zero_gguf("vocabulary", arch="llama", **(SMALL | {"n_vocab": 120_000}))
    draft = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3")
    draft += ("--spec-ngram-simple-size-m", str(N_MAX))
    real = server_sizes(path, "-c", "4096", "-np", "4", *draft, "--no-warmup")
    model = read_model(path)
    counted = compute_bytes(model, 1024, 4, 4 * (1 + N_MAX))
    assert counted == pytest.approx(real["compute"][0], rel=0.02)
    without = compute_bytes(model, 1024, 4, 4)
    assert without < 0.8 * counted


def test_packed_weights_of_real_models(
    smollm2: Path, server_sizes: Sizes, here: Machine, zero_gguf: Callable[..., Path]
) -> None:
    real = server_sizes(smollm2, "-c", "512", "-np", "1", "--no-warmup")
    if not real["packed"]:
        pytest.skip("no kernels for this processor")
    model = read_model(smollm2)
    kept = sum(t.nbytes for t in model.tensors if t.type == "F32" or "token_embd" in t.name)
    counted = planned(smollm2, here, ctx=512, draft="none")["weights"]
    assert counted == pytest.approx(kept + real["packed"][0], abs=MIB / 100)
    floats = zero_gguf("floats", **SHAPES["dense"])
    assert not server_sizes(floats, "-c", "512", "--no-warmup")["packed"]


def test_quantized_kv(smollm2: Path, server_sizes: Sizes, machines: Any) -> None:
    types = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
    real = server_sizes(smollm2, "-c", "4096", "-np", "1", "-ctk", "q8_0", "-ctv", "q8_0")
    counted = planned(smollm2, machines.laptop, ctx=4096, draft="none", **types)
    assert counted["kv"] == pytest.approx(sum(real["KV"]), rel=0.001)


def test_mtp_head_with_its_rollback_planes(
    zero_gguf: Callable[..., Path], server_sizes: Sizes, machines: Any
) -> None:
    sizes = SHAPES["hybrid"] | {"mtp": 1}
    path = zero_gguf("mtp", **sizes)
    draft = ("--spec-type", "draft-mtp", "--spec-draft-n-max", str(N_MAX))
    real = server_sizes(path, "-c", "4096", "-np", "1", *draft, "--no-warmup")
    counted = planned(path, machines.laptop, ctx=4096)
    # One state in use and one per drafted token; the head keeps a KV cache of its own.
    state = sum(real["RS"]) / (1 + N_MAX)
    assert counted["rollback"] == pytest.approx(N_MAX * state, rel=0.01)
    assert counted["kv"] == pytest.approx(real["KV"][0] + state, rel=0.01)
    extra = sum(real["model"]) - counted["weights"] + real["KV"][1] + real["compute"][1]
    assert extra * (1 - BELOW) <= counted["draft"] <= extra * (1 + ABOVE)
    assert close(real["compute"][0], counted["compute"])


@pytest.mark.parametrize("arch", ["qwen35", "qwen35moe", "qwen3next"])
@pytest.mark.parametrize("slots", [1, 2])
def test_rollback_planes_of_other_drafters(
    arch: str,
    slots: int,
    tiny_target: Callable[[str], Path],
    server_sizes: Sizes,
    here: Machine,
) -> None:
    path = tiny_target(arch)
    draft = ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3")
    draft += ("--spec-ngram-simple-size-m", str(N_MAX))
    real = server_sizes(path, "-c", str(4096 * slots), "-np", str(slots), *draft, "--no-warmup")
    counted = planned(path, here, ctx=4096, parallel=slots, draft="ngram")
    planes = 0 if arch == "qwen3next" and slots > 1 else N_MAX  # else a copy
    state = sum(real["RS"]) / (1 + planes)
    assert counted["rollback"] == pytest.approx((planes or 1) * state, rel=0.01)
    assert counted["kv"] == pytest.approx(real["KV"][0] + state, rel=0.01)


def test_a_drafter_beside_its_target(smollm2: Path, server_sizes: Sizes, here: Machine) -> None:
    draft = ("-md", str(smollm2), "--spec-type", "draft-simple")
    draft += ("--spec-draft-n-max", str(N_MAX), "--spec-draft-ngl", "0")
    real = server_sizes(smollm2, "-c", "4096", "-np", "2", *draft, "--no-warmup")
    request = {"ctx": 2048, "parallel": 2, "draft": str(smollm2)}
    counted = planned(smollm2, here, **request)
    second = real["KV"][1] + real["compute"][1]
    if real["packed"]:
        # The rest of the mapping is not held: the file's pages can go again once they are packed.
        tensors = read_model(smollm2).tensors
        second += real["packed"][1] + sum(
            t.nbytes for t in tensors if t.name == "token_embd.weight"
        )
    else:
        second += real["model"][1]
    assert counted["draft"] == pytest.approx(second, rel=0.05)
    logits = output_bytes(read_model(smollm2), 2 * (1 + N_MAX))  # held beside the buffer
    assert counted["compute"] - logits == pytest.approx(real["compute"][0], rel=0.05)


def test_the_process_takes_no_more_than_counted_and_reserved(
    smollm2: Path, server_sizes: Sizes, here: Machine
) -> None:
    real = server_sizes(smollm2, "-c", "8192", "-np", "1")
    request = HostRequest(smollm2, ctx=8192, draft="none")
    model = read_model(smollm2)
    plan = outline(request, model, here, "srhpm", DraftChoice(None))
    total = memory(plan)[0].total
    assert 0.8 * total <= real["rss"][0] <= total + RAM_RESERVE

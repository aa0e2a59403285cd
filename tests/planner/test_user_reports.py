"""Five failures that users of other planners reported, replayed: each with the right plan.

Numbers of GPU memory are chosen so that the reported mistake would happen: each test first shows
that the part in question does not fit beside what a planner without it would place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.room import reserve

GIB = 1024**3
Show = Callable[[ModelInfo], Path]


def planned(
    model: ModelInfo, machine: Machine, known: tuple[Path, ...] = (), **asked: Any
) -> LaunchPlan:
    """A plan that keeps within what every device has free."""
    plan = make_plan(
        HostRequest(model.path, **asked), model=model, machine=machine, known=known, command=False
    )
    for use in plan.memory:
        assert not use.total or use.total + reserve(use.device, machine) <= use.free
    return plan


def card_for(plan: LaunchPlan, spare: float, machines: SimpleNamespace) -> Machine:
    """A machine whose GPU has room for the plan and ``spare`` GiB besides."""
    gpu = plan.memory[1]
    free = gpu.total / GIB + spare + reserve("CUDA0", machines.big_gpu) / GIB
    machine: Machine = machines.make(60, gpus=[(24, free)])
    return machine


def has_room(machine: Machine, nbytes: int) -> bool:
    return nbytes + reserve("CUDA0", machine) <= machine.gpus[0].free


@pytest.fixture
def named(models: SimpleNamespace, headers: Show) -> Path:
    """A drafter under a path that exists, as a named one must."""
    return headers(replace(models.small, path=Path(__file__)))


# 1. Copies of the recurrent state, kept for rollback, pushed layers to the CPU: 3.1 tokens/s with
# MTP against 12.1 without (unsloth PR 8875); 19 % of the model moved (ollama#18186).


def test_rollback_copies_push_no_layers_to_the_cpu(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    asked: dict[str, Any] = {"ctx": 8192, "parallel": 2}
    roomy = planned(models.hybrid27, machines.make(60, gpus=[(48, 47)]), **asked)
    assert roomy.draft is not None
    assert roomy.draft.type == "draft-mtp"
    bare = planned(models.hybrid27, machines.big_gpu, draft="none", **asked)
    # Room for the MTP head alone, not for the copies that it makes necessary.
    head = roomy.memory[1].draft / GIB
    copies = roomy.memory[1].rollback / GIB
    assert copies > 1.8
    machine = card_for(bare, head + copies / 2, machines)
    assert not has_room(machine, roomy.memory[1].total)
    plan = planned(models.hybrid27, machine, **asked)
    assert (plan.kind, plan.gpu_layers) == ("all-gpu", bare.gpu_layers)
    assert plan.draft is not None
    assert plan.draft.type == "ngram"
    assert plan.memory[1].rollback == 0, "n-grams take one copy, in RAM"
    assert plan.rollback == "copy"
    (kept,) = [reason for reason in plan.reasons if "copied before each draft" in reason]
    assert "7 more of it beside the model" in kept
    (why,) = [reason for reason in plan.reasons if "would push layers" in reason]
    assert "the MTP head with its" in why


# 2. The drafter stayed on the CPU beside a target on the GPU and made it slower
# (lmstudio-bug-tracker#458, llama.cpp#10664).


def test_the_drafter_goes_to_the_gpu_first(
    models: SimpleNamespace, machines: SimpleNamespace, headers: Show
) -> None:
    known = (headers(models.small),)
    plan = planned(models.dense27, machines.desktop, known)
    assert plan.draft is not None
    assert (plan.draft.path, plan.draft.device) == (models.small.path, "CUDA0")
    assert plan.memory[1].draft > 0
    without = planned(models.dense27, machines.desktop, known, draft="none")
    assert without.gpu_layers > plan.gpu_layers > 0, "layers of the target make room for it"
    whole = planned(models.dense27, machines.make(60, gpus=[(32, 31)]), known)
    assert whole.draft is not None
    assert (whole.kind, whole.draft.device) == ("all-gpu", "CUDA0")


def test_a_drafter_without_room_runs_beside_layers_in_ram(
    models: SimpleNamespace, machines: SimpleNamespace, headers: Show
) -> None:
    cramped = planned(
        models.dense27, machines.make(28, gpus=[(1.5, 1.2)]), (headers(models.small),)
    )
    assert cramped.draft is not None
    assert cramped.draft.device == "CPU"
    assert any("stays in RAM" in reason for reason in cramped.reasons)


# 3. Fitting the layers counted no drafter: out of memory at the first decode (llama.cpp#23472).


def test_what_fits_is_counted_with_the_drafter(
    models: SimpleNamespace, machines: SimpleNamespace, headers: Show, named: Path
) -> None:
    bare = planned(models.dense27, machines.big_gpu, draft="none", ctx=8192)
    machine = card_for(bare, 0.25, machines)
    known = (headers(models.small),)
    # Nobody asked for a drafter: n-grams need none of the card.
    plan = planned(models.dense27, machine, known, ctx=8192)
    assert (plan.kind, plan.gpu_layers) == ("all-gpu", 65)
    assert plan.draft is not None
    assert plan.draft.type == "ngram"
    assert any("push layers" in reason for reason in plan.reasons)
    # Asked for by name it gets its room, with its own cache and buffers, from layers of the target.
    asked = planned(models.dense27, machine, draft=str(named), ctx=8192)
    gpu = asked.memory[1]
    assert gpu.draft > models.small.nbytes
    assert not has_room(machine, bare.memory[1].total + gpu.draft)
    assert asked.gpu_layers < 65
    assert asked.kind == "srhpm"
    assert "pushes layers into RAM" in asked.reasons[0]


def test_the_room_of_an_mtp_head_is_counted(
    models: SimpleNamespace, machines: SimpleNamespace
) -> None:
    bare = planned(models.hybrid27, machines.big_gpu, draft="none", ctx=8192)
    plan = planned(models.hybrid27, card_for(bare, 0.1, machines), ctx=8192)
    assert plan.kind == "all-gpu"
    assert plan.draft is not None
    assert plan.draft.type == "ngram"
    with_head = planned(models.hybrid27, machines.make(60, gpus=[(32, 31)]), ctx=8192)
    assert with_head.draft is not None
    assert with_head.draft.type == "draft-mtp"
    # llama.cpp#23472: the second context has a cache and buffers besides the head's weights.
    head = sum(t.nbytes for t in models.hybrid27.tensors if t.layer == models.hybrid27.n_layer)
    assert with_head.memory[1].draft > head


# 4. A processor of 20 cores computed with 4 threads (ramalama#934), or with all of its kinds of
# cores, where the slow ones hold the fast ones up (llama.cpp#842).


def hybrid_of_20(root: Path) -> Machine:
    """Eight performance cores with two threads each and twelve efficiency cores."""
    files = {
        "sys/devices/system/cpu/online": "0-27",
        "sys/devices/cpu_core/cpus": "0-15",
        "sys/devices/cpu_atom/cpus": "16-27",
        "proc/self/status": "Cpus_allowed_list:\t0-27\n",
        "proc/meminfo": "MemTotal: 33554432 kB\nMemAvailable: 29360128 kB\n",
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Hybrid\nflags\t\t: fpu\n",
    }
    for cpu in range(28):
        pair = f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}" if cpu < 16 else str(cpu)
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = pair
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return replace(probe(root=root), gpus=())


def test_every_performance_core_of_a_hybrid_gets_a_thread(
    models: SimpleNamespace, tmp_path: Path
) -> None:
    machine = hybrid_of_20(tmp_path)
    assert (machine.cpu.physical, machine.cpu.logical) == (20, 28)
    plan = planned(models.dense27, machine)
    assert plan.threads == 8
    assert any("8 of 20" in reason for reason in plan.reasons)
    # A host that asks for four is obeyed.
    assert planned(models.dense27, machine, threads=4).threads == 4


# 5. The projector was not counted: out of memory on the first image (llama.cpp#18111).


def test_the_projector_has_its_room(
    models: SimpleNamespace, machines: SimpleNamespace, tmp_path: Path
) -> None:
    projector = tmp_path / "mmproj.gguf"
    with projector.open("wb") as file:
        file.truncate(900 * 1024**2)
    bare = planned(models.dense27, machines.big_gpu, draft="none", ctx=8192)
    machine = card_for(bare, 0.5, machines)
    assert planned(models.dense27, machine, draft="none", ctx=8192).gpu_layers == 65
    plan = planned(models.dense27, machine, draft="none", ctx=8192, mmproj=projector)
    gpu = plan.memory[1]
    assert gpu.projector > 900 * 1024**2, "its weights and the space it works in"
    assert not has_room(machine, bare.memory[1].total + gpu.projector)
    assert 50 < plan.gpu_layers < 65
    # Where the context is free to choose, a shorter one keeps the model on the card.
    chosen = planned(models.dense27, machine, draft="none", mmproj=projector)
    assert (chosen.kind, chosen.gpu_layers) == ("all-gpu", 65)
    assert chosen.ctx < 8192

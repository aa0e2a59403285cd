"""Memory for several models, with the real planner on a small real model."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from serve_parts import plan_of, served

from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.types import Gpu, Machine
from srhpm_plugin.plan import LaunchPlan, MemoryUse
from srhpm_plugin.planner import make
from srhpm_plugin.serve import planning
from srhpm_plugin.serve.budget import Resident, beside, private_bytes, without
from srhpm_plugin.serve.interfaces import Need
from srhpm_plugin.serve.settings import Settings

GIB = 1 << 30
MIB = 1 << 20


def machine_with(free: int, gpus: tuple[Gpu, ...] = ()) -> Machine:
    machine = probe()
    memory = replace(machine.memory, total=64 * GIB, free=free, cgroup_limit=None)
    return replace(machine, memory=memory, gpus=gpus)


def resident(cpu: int, held: int, gpu: int = 0) -> Resident:
    rows = (MemoryUse("CPU", weights=cpu), MemoryUse("CUDA0", weights=gpu))
    return Resident(replace(plan_of(Path("/m.gguf")), memory=rows), held)


def test_what_a_server_has_yet_to_take_is_set_aside() -> None:
    machine = machine_with(10 * GIB)
    loaded = [resident(3 * GIB, held=GIB), resident(GIB, held=2 * GIB)]
    assert beside(machine, loaded).memory.free == 8 * GIB
    assert beside(machine_with(GIB), loaded).memory.free == 0


def test_what_would_be_free_without_them() -> None:
    gpu = Gpu("CUDA0", "GPU", 8 * GIB, 2 * GIB, "nvml")
    machine = machine_with(10 * GIB, (gpu,))
    loaded = [resident(3 * GIB, held=GIB, gpu=5 * GIB), resident(GIB, held=2 * GIB)]
    freed = without(machine, loaded)
    assert freed.memory.free == 13 * GIB
    assert freed.gpus[0].free == 7 * GIB
    assert without(machine, [resident(0, 100 * GIB, gpu=GIB)] * 9).gpus[0].free == 8 * GIB
    assert without(machine, [resident(0, 100 * GIB)]).memory.free == 64 * GIB


def test_private_bytes_of_a_process() -> None:
    code = f"held = bytearray(b'x' * {200 * MIB}); print(flush=True); input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert 200 * MIB < private_bytes(child.pid) < 300 * MIB
    finally:
        child.communicate(b"\n")
    assert private_bytes(child.pid) == 0


@pytest.mark.server
def test_a_model_goes_beside_another_only_if_it_loses_nothing(
    smollm2: Path, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "llama-server"))
    model, settings = served("a", smollm2), Settings(draft="none", ctx=8192)

    def fits(free: int, *loaded: Resident) -> bool:
        return planning.plan_beside(model, Need(), settings, machine_with(free), loaded) is not None

    other = resident(2 * GIB, held=2 * GIB)
    assert fits(8 * GIB, other)
    assert not fits(300 * MIB, other)  # but it would without the other
    with pytest.raises(UserError, match="does not fit"):
        fits(100 * MIB)
    with pytest.raises(UserError, match="does not fit"):
        fits(100 * MIB, resident(MIB, held=MIB))
    # Room for the model, none for the context that nobody asked to cut.
    free_ctx = Settings(draft="none")
    alone = planning.plan_beside(model, Need(), free_ctx, machine_with(8 * GIB), ())
    assert alone is not None
    short = sum(use.total - use.cache for use in alone.memory) + 256 * MIB - alone.memory[0].kv // 2
    cut = planning.plan_beside(model, Need(), free_ctx, machine_with(short), ())
    assert cut is not None and cut.ctx < alone.ctx
    assert planning.plan_beside(model, Need(), free_ctx, machine_with(short), (other,)) is None


@pytest.mark.server
def test_the_command_of_needs(
    smollm2: Path, server_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "llama-server"))
    lora = tmp_path / "lora.gguf"
    model = served("a", smollm2, adapters=(lora,), ctx=4096)
    settings = Settings(parallel=2)
    machine = machine_with(8 * GIB)

    def argv(need: Need) -> list[str]:
        plan = planning.plan_for(model, need, settings, machine)
        return list(planning.command_of(plan, model, need).argv)

    def value(words: list[str], flag: str) -> str:
        return words[words.index(flag) + 1]

    plain = argv(Need())
    assert value(plain, "--ctx-size") == "8192" and value(plain, "--lora") == str(lora)
    asked = argv(Need(ctx=1024, threads=1, gpu_layers=0))
    assert value(asked, "--ctx-size") == "2048" and value(asked, "--threads") == "1"
    embedding = argv(Need(embedding=True, ctx=512))
    assert "--embeddings" in embedding and value(embedding, "--ubatch-size") == "512"
    assert value(embedding, "--spec-type") == "none" and value(embedding, "--pooling") == "last"


@pytest.mark.server
def test_the_store_s_drafter_comes_first(
    smollm2: Path, server_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "llama-server"))
    drafter = tmp_path / "drafter.gguf"
    shutil.copyfile(smollm2, drafter)
    model = served("a", smollm2, drafter=drafter)
    looked: list[tuple[Path, ...]] = []

    def make_plan(*args: Any, known: tuple[Path, ...], **more: Any) -> LaunchPlan:
        looked.append(known)
        return make.make_plan(*args, known=known, **more)

    monkeypatch.setattr(planning, "make_plan", make_plan)
    plan = planning.plan_for(model, Need(), Settings(), machine_with(8 * GIB))
    assert looked[0] == (drafter,)
    # As large as its target it is refused, and the others have their turn.
    assert len(looked) == 2 and plan.draft is not None and plan.draft.type == "ngram"

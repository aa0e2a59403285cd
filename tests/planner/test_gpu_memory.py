"""What the planner counts on each device is what the real server logs beside a GPU.

The GPU is a stand-in (native/tests/stand-in-gpu.h) that takes products of prompts, as CUDA's does.
Weights, caches and states are exact. A compute buffer depends on which holes the allocator finds;
it is compared as a part of the whole, which is what has to fit.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model
from srhpm_plugin.machine.isa import host_isa
from srhpm_plugin.machine.types import Gpu
from srhpm_plugin.plan import HostRequest, MemoryUse, layer_list
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.drafter import N_MAX, choose_draft
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.memory import memory
from srhpm_plugin.planner.room import GPU_RESERVE, put

pytestmark = pytest.mark.server

MIB = 1024**2
TOLERANCE = 0.03

GPU = "STANDIN0"
LAYERS = 48
SMALL: dict[str, Any] = {
    "n_embd": 256, "n_ff": 1024, "heads": 4, "heads_kv": 2, "head": 64, "n_vocab": 4000,
    "n_layer": LAYERS,
}  # fmt: skip
HYBRID = {"heads": 2, "heads_kv": 1, "head": 128, "ssm_inner": 384, "ssm_groups": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "dense": {"arch": "llama"},
    "tied": {"arch": "qwen3", "tied": True, "n_vocab": 12000},
    "wide attention": {"arch": "qwen3", "heads": 16, "heads_kv": 8},
    "experts": {"arch": "qwen3moe", "experts": 16, "used": 4, "ff_exp": 192},
    "windows": {"arch": "gemma3", "window": 512, "window_every": 4},
    "hybrid": {"arch": "qwen35", **HYBRID},
    "mtp": {"arch": "qwen35", **HYBRID, "mtp": 1},
}


@dataclass(frozen=True)
class Case:
    """A placement: so many of the last layers, or those ``on`` the GPU (``-1``: the head)."""

    layers: int = 0
    on: tuple[int, ...] = ()
    cpu_moe: int = 0
    ctx: int = 4096
    parallel: int = 1


SET = (1, 2, 3, *range(5, 12), 13, *range(20, 30), -1)
CASES = {
    "nothing": Case(),
    "tail": Case(18),
    "all": Case(LAYERS + 2),
    "set": Case(on=SET),
    "set without the head": Case(on=SET[:-1]),
    "three slots": Case(on=SET, ctx=1024, parallel=3),
}


@pytest.fixture(scope="module", params=SHAPES)
def model(request: pytest.FixtureRequest, zero_gguf: Callable[..., Path]) -> Iterator[Path]:
    path = zero_gguf(f"gpu-{request.param}".replace(" ", "-"), **(SMALL | SHAPES[request.param]))
    yield path
    path.unlink()  # a hundred megabytes


@pytest.fixture(scope="module")
def ask(server_dir: Path) -> Callable[..., dict[str, dict[str, float]]]:
    """``ask(model, *args, **env)``: bytes by device and part that the server logs."""
    program = next(p for p in server_dir.iterdir() if p.stem == "test-server")

    def _ask(model: Path, *args: str, **env: str) -> dict[str, dict[str, float]]:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        argv = [str(program), "-m", str(model), "--port", str(port), "-t", "1", "-tb", "1"]
        # Mapped weights are logged as the whole file.
        argv += ["--fit", "off", "--load-mode", "none", "--flash-attn", "on", "--no-warmup"]
        settings = {"STANDIN_MEMORY": "8192", "OMP_WAIT_POLICY": "passive", **env}
        log = ""
        with subprocess.Popen(
            [*argv, "-lv", "4", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **settings},
        ) as process:
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    log += line
                    if "listening" in line:
                        return _sizes(log)
                raise AssertionError(log[-4000:])
            finally:
                process.kill()

    return _ask


def _sizes(log: str) -> dict[str, dict[str, float]]:
    sizes: dict[str, dict[str, float]] = {"CPU": {}, GPU: {}}
    found = re.findall(r"(\w+) +(model|KV|RS|compute|output) buffer size = +([\d.]+) MiB", log)
    seen: dict[tuple[str, str], int] = {}
    for name, part, mib in found:
        device = GPU if name == GPU else "CPU"
        seen[name, part] = seen.get((name, part), 0) + 1
        if part == "compute" and seen[name, part] > 2:
            continue  # an MTP context reserves its buffer twice
        sizes[device][part] = sizes[device].get(part, 0.0) + float(mib) * MIB
    return sizes


def compare(
    path: Path,
    case: Case,
    machines: SimpleNamespace,
    ask: Callable[..., dict[str, dict[str, float]]],
    *args: str,
    draft: str = "none",
    draft_device: str = "CPU",
) -> None:
    header = read_model(path)
    mtp = bool(header.n_mtp_layers)
    places = LAYERS + header.n_mtp_layers + 1
    on = {places - 1 if i < 0 else i for i in case.on}
    layer_set = tuple(0 if i in on else -1 for i in range(places)) if on else ()
    layers = len(on) or min(case.layers, places)
    machine = machines.make(13, isa=host_isa())
    machine = replace(machine, gpus=(Gpu(GPU, "stand-in", 8 << 30, 8 << 30, "nvml"),))
    request = HostRequest(
        path, ctx=case.ctx, parallel=case.parallel, draft="auto" if mtp else draft
    )
    choice = choose_draft(request, header, ())
    plan = outline(request, header, machine, "srhpm", choice)
    counted = memory(put(plan, layers, case.cpu_moe, draft_device, layer_set))

    argv = ["-ngl", str(layers), "-np", str(case.parallel), "-c", str(case.ctx * case.parallel)]
    argv += ["--n-cpu-moe", str(case.cpu_moe)] if case.cpu_moe else []
    argv += ["--device", "none"] if not layers else []
    argv += ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(N_MAX)] if mtp else []
    text = layer_list(layer_set) if layer_set else ""
    real = ask(path, *argv, *args, SRHPM_GPU_LAYERS=text)
    for use in counted:
        check(use, real[use.device], handed_over=2048 * header.n_embd * 4 * mtp)


def check(use: MemoryUse, real: dict[str, float], handed_over: int) -> None:
    kept = real.get("KV", 0.0) + real.get("RS", 0.0)
    rest = use.total - use.compute - use.draft
    if not use.draft:
        assert rest == pytest.approx(real.get("model", 0.0) + kept, rel=1e-3, abs=MIB / 20)
    # Memory of ours that is no buffer of the server's.
    total = use.total - (handed_over if use.device == "CPU" else 0)
    assert total == pytest.approx(sum(real.values()), rel=TOLERANCE, abs=MIB / 20), (use, real)


@pytest.mark.parametrize("case", CASES)
def test_placements(
    case: str,
    model: Path,
    machines: SimpleNamespace,
    ask: Callable[..., dict[str, dict[str, float]]],
) -> None:
    compare(model, CASES[case], machines, ask)


def make(zero_gguf: Callable[..., Path], name: str, shape: str, **more: Any) -> Path:
    return zero_gguf(f"gpu-{name}", **(SMALL | SHAPES[shape] | more))


def test_experts_in_ram(
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    ask: Callable[..., dict[str, dict[str, float]]],
) -> None:
    path = make(zero_gguf, "cpu-moe", "experts", n_layer=LAYERS)
    for cpu_moe in (LAYERS // 3, LAYERS):
        compare(path, Case(LAYERS + 1, cpu_moe=cpu_moe), machines, ask)
    compare(path, Case(on=SET, cpu_moe=LAYERS), machines, ask)
    path.unlink()


@pytest.mark.parametrize("device", ["CPU", GPU])
def test_a_drafter(
    device: str,
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    ask: Callable[..., dict[str, dict[str, float]]],
) -> None:
    path = make(zero_gguf, f"target-{device}", "dense")
    drafter = make(zero_gguf, f"drafter-{device}", "dense", n_layer=8)
    args = ["--spec-type", "draft-simple", "--spec-draft-model", str(drafter)]
    args += ["--spec-draft-n-max", str(N_MAX)]
    args += ["--spec-draft-device", "none" if device == "CPU" else device]
    args += ["--spec-draft-ngl", "0" if device == "CPU" else "all"]
    for case in (CASES["nothing"], CASES["set"], CASES["all"]):
        compare(path, case, machines, ask, *args, draft=str(drafter), draft_device=device)
    path.unlink()


@pytest.mark.parametrize("shape", ["dense", "wide attention"])
def test_a_long_context(
    shape: str,
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    ask: Callable[..., dict[str, dict[str, float]]],
) -> None:
    """The cache of a layer in RAM visits the GPU with each prompt."""
    path = make(zero_gguf, f"far-{shape}".replace(" ", "-"), shape)
    compare(path, replace(CASES["set"], ctx=16384), machines, ask)
    path.unlink()


def test_a_planned_set_runs_in_the_memory_it_was_given(
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    server_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[..., dict[str, dict[str, float]]],
) -> None:
    """From the plan to the server: a GPU with no more than what was counted, and the tolerance."""
    monkeypatch.setenv("SRHPM_SERVER", str(next(server_dir.glob("llama-server*"))))
    path = make(zero_gguf, "planned", "windows")
    machine = machines.make(13, isa=host_isa())
    free = GPU_RESERVE + 150 * MIB
    machine = replace(machine, gpus=(Gpu(GPU, "stand-in", free, free, "nvml"),))
    request = HostRequest(path, ctx=16384, draft="none")
    plan = make_plan(request, machine=machine, known=())
    assert plan.layer_list is not None
    assert plan.argv[plan.argv.index("--gpu-layers") + 1] == str(plan.gpu_layers)
    (gpu,) = (use for use in plan.memory if use.device == GPU)
    limit = int(gpu.total * (1 + TOLERANCE)) // MIB + 1
    argv = list(plan.argv[plan.argv.index("--ctx-size") :])
    # said by ``ask`` itself
    for flag in ("--threads", "--threads-batch", "--fit", "--flash-attn"):
        del argv[argv.index(flag) : argv.index(flag) + 2]
    real = ask(path, *argv, **dict(plan.env), STANDIN_MEMORY=str(limit))
    assert sum(real[GPU].values()) == pytest.approx(gpu.total, rel=TOLERANCE)
    path.unlink()

"""Our placement is never worse than what upstream's ``--fit`` makes of the same GPU memory.

Both leave the same room free, and a drafter, if any, is on the GPU with both. The GPU is a stand-in
with so little memory that only a part fits; passes are compared by the planner's cost model, and
ours must then load in that memory.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model
from srhpm_plugin.machine.isa import host_isa
from srhpm_plugin.machine.types import Gpu
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost.places import CROSSING_MS, place_costs
from srhpm_plugin.planner.drafter import N_MAX, choose_draft
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.layersets import CPU, Place, gain_of
from srhpm_plugin.planner.memory import place_bytes
from srhpm_plugin.planner.room import GPU_RESERVE

pytestmark = pytest.mark.server

MIB = 1024**2
TOLERANCE = 0.03
GPU = "STANDIN0"
SMALL: dict[str, Any] = {
    "n_embd": 256, "n_ff": 1024, "heads": 4, "heads_kv": 2, "head": 64, "n_vocab": 4000,
    "n_layer": 48,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "dense": {"arch": "llama"},
    "windows": {"arch": "gemma3", "window": 512, "window_every": 4},
    "hybrid": {"arch": "qwen35", "heads": 2, "heads_kv": 1, "head": 128, "ssm_inner": 384,
               "ssm_groups": 1},
}  # fmt: skip


def start(program: Path, free: int, *args: str, **env: str) -> str:
    """The log of a server on a GPU of ``free`` bytes, until it listens."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    argv = [str(program), *args, "--port", str(port), "--no-warmup", "-lv", "5"]
    settings = {"STANDIN_MEMORY": str(free // MIB), "OMP_WAIT_POLICY": "passive", **env}
    log = ""
    with subprocess.Popen(
        argv,
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
                    return log
            raise AssertionError(log[-8000:])
        finally:
            process.kill()


def loaded_part(log: str) -> str:
    """What follows fit's own trials, which log as a load does."""
    return log[max(0, log.rfind("common_fit_params: ")) :]


def target_layers(log: str) -> int:
    """On the GPU; the target is loaded first, then a drafter."""
    return int(re.findall(r"offloaded (\d+)/\d+ layers", loaded_part(log))[0])


def used(log: str) -> float:
    """MiB of the GPU's buffers once all is loaded."""
    loaded = loaded_part(log)
    found = re.findall(rf"{GPU} +(?:model|KV|RS|compute) buffer size = +([\d.]+) MiB", loaded)
    return sum(map(float, found))


# Without a drafter in two sizes of room, with one in the larger.
ROOMS = [(60, False), (90, False), (90, True)]


@pytest.mark.parametrize(("room", "drafted"), ROOMS)
@pytest.mark.parametrize("ctx", [2048, 16384])
@pytest.mark.parametrize("shape", SHAPES)
def test_not_worse_than_fit(
    shape: str,
    ctx: int,
    room: int,
    drafted: bool,
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    server_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(next(server_dir.glob("llama-server*"))))
    program = next(p for p in server_dir.iterdir() if p.stem == "test-server")
    path = zero_gguf(f"fit-{shape}", **(SMALL | SHAPES[shape]))
    free = GPU_RESERVE + room * MIB
    machine = replace(
        machines.make(13, isa=host_isa()), gpus=(Gpu(GPU, "stand-in", free, free, "nvml"),)
    )
    fit = ["-m", str(path), "-c", str(ctx), "-np", "1", "-fa", "on", "--fit", "on"]
    draft = "none"
    if drafted:
        draft = str(zero_gguf("fit-drafter", **(SMALL | {"arch": "llama", "n_layer": 2})))
        fit += ["--spec-type", "draft-simple", "--spec-draft-model", draft]
        fit += ["--spec-draft-n-max", str(N_MAX)]
    request = HostRequest(path, ctx=ctx, parallel=1, draft=draft)
    ours = make_plan(request, machine=machine, known=())
    assert (ours.draft.device if ours.draft else None) == (GPU if drafted else None)

    theirs = start(program, free, *fit, "-fitt", str(GPU_RESERVE // MIB))
    layers = target_layers(theirs)

    header = read_model(path)
    plan = outline(request, header, machine, "srhpm", choose_draft(request, header, ()))
    costs = place_costs(plan).ms
    places = [Place(ms, place_bytes(plan, i)) for i, ms in enumerate(costs)]

    def tail(count: int) -> list[int]:
        return [0 if i >= len(costs) - count else CPU for i in range(len(costs))]

    assert layers < len(costs), "only a part fits, or nothing is compared"
    gains = (
        gain_of(ours.layer_set or tail(ours.gpu_layers), places, CROSSING_MS),
        gain_of(tail(layers), places, CROSSING_MS),
    )
    log = start(program, free, *ours.argv[1:], **dict(ours.env))
    took = used(log), used(theirs)
    name = shape + ", drafter" * drafted
    print(
        f"| {name} | {ctx} | {room} | {layers} | {took[1]:.0f} | "
        f"{sum(costs) - gains[1]:.2f} | {ours.gpu_layers} | {took[0]:.0f} | "
        f"{sum(costs) - gains[0]:.2f} |"
    )
    assert gains[0] >= gains[1] - 1e-9
    assert took[0] <= room * (1 + TOLERANCE), "the room is kept but for what counting may miss"


def test_a_drafter_that_leaves_no_room(
    zero_gguf: Callable[..., Path],
    machines: SimpleNamespace,
    server_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``--fit`` counts the drafter but never moves it: the server does not start. Our plan leaves
    it in RAM."""
    monkeypatch.setenv("SRHPM_SERVER", str(next(server_dir.glob("llama-server*"))))
    program = next(p for p in server_dir.iterdir() if p.stem == "test-server")
    path = zero_gguf("fit-target", **(SMALL | SHAPES["dense"]))
    draft = zero_gguf("fit-large-drafter", **(SMALL | SHAPES["dense"] | {"n_layer": 40}))
    room, ctx = 60, 2048
    fit = ["-m", str(path), "-c", str(ctx), "-np", "1", "-fa", "on", "--fit", "on"]
    fit += ["--spec-type", "draft-simple", "--spec-draft-model", str(draft)]
    # All that the GPU has is the room, so that it really is not there.
    with pytest.raises(AssertionError, match="do not fit"):
        start(program, room * MIB, *fit, "-fitt", "0")

    free = GPU_RESERVE + room * MIB
    machine = replace(
        machines.make(13, isa=host_isa()), gpus=(Gpu(GPU, "stand-in", free, free, "nvml"),)
    )
    request = HostRequest(path, ctx=ctx, parallel=1, draft=str(draft))
    ours = make_plan(request, machine=machine, known=())
    assert ours.draft is not None and ours.draft.device == "CPU"
    assert ours.gpu_layers > 0
    limit = int(room * (1 + TOLERANCE)) * MIB
    assert used(start(program, limit, *ours.argv[1:], **dict(ours.env))) <= room * (1 + TOLERANCE)

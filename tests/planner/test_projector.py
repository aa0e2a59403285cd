"""What is planned for a projector is what the server logs: in RAM and on a stand-in for a GPU."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import gguf
import numpy as np
import pytest

from srhpm_plugin.machine.types import Gpu
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import DraftChoice, HostRequest
from srhpm_plugin.planner.kind import outline
from srhpm_plugin.planner.memory import CPU, memory
from srhpm_plugin.planner.projector import projector_of
from srhpm_plugin.planner.room import put

MIB = 1024**2
TOLERANCE = 0.03
GPU = "STANDIN0"
OUT = 576  # SmolLM2's width


class Encoder(NamedTuple):
    """``joined``: with a token for the class of the whole picture."""

    kind: str
    side: int
    patch: int
    width: int
    inner: int
    layers: int
    joined: bool = False


# CLIP's at 336, SigLIP's as Gemma's and as SmolVLM's: their widths, with a fourth of the layers.
ENCODERS = {
    "llava": Encoder("mlp", 336, 14, 1024, 4096, 6, joined=True),
    "llava without a class": Encoder("mlp", 336, 14, 1024, 2816, 6),
    "gemma3": Encoder("gemma3", 896, 14, 1152, 4304, 7),
    "idefics3": Encoder("idefics3", 512, 16, 768, 3072, 3),
    "narrow": Encoder("idefics3", 384, 16, 768, 1024, 3),
}


def write(path: Path, e: Encoder) -> Path:
    """A projector of zeros."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", e.kind)
    numbers = {
        "image_size": e.side, "patch_size": e.patch, "embedding_length": e.width,
        "block_count": e.layers, "feed_forward_length": e.inner, "projection_dim": OUT,
        "attention.head_count": 16,
    }  # fmt: skip
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])

    def add(name: str, *shape: int) -> None:
        kind = np.float16 if len(shape) > 1 else np.float32
        writer.add_tensor(name, np.zeros(shape, kind))

    def norm(name: str) -> None:
        add(f"{name}.weight", e.width)
        add(f"{name}.bias", e.width)

    add("v.patch_embd.weight", e.width, 3, e.patch, e.patch)
    positions = (e.side // e.patch) ** 2 + e.joined
    writer.add_tensor("v.position_embd.weight", np.zeros((positions, e.width), np.float32))
    if e.joined:
        add("v.class_embd", e.width)
    for i in range(e.layers):
        for name in ("ln1", "ln2"):
            norm(f"v.blk.{i}.{name}")
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"v.blk.{i}.{name}.weight", e.width, e.width)
            add(f"v.blk.{i}.{name}.bias", e.width)
        add(f"v.blk.{i}.ffn_up.weight", e.inner, e.width)
        add(f"v.blk.{i}.ffn_down.weight", e.width, e.inner)
    if e.kind == "mlp":
        for name, width in (("mm.0", e.width), ("mm.2", OUT)):
            add(f"{name}.weight", OUT, width)
            add(f"{name}.bias", OUT)
    else:
        norm("v.post_ln")
    if e.kind == "gemma3":
        add("mm.input_projection.weight", e.width, OUT)
        add("mm.soft_emb_norm.weight", e.width)
    if e.kind == "idefics3":
        writer.add_uint32("clip.vision.projector.scale_factor", 2)
        writer.add_uint32("clip.vision.preproc_image_size", 4 * e.side)
        add("mm.model.fc.weight", OUT, 4 * e.width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def logged(program: Path, model: Path, path: Path, *args: str, **env: str) -> dict[str, float]:
    """Bytes of each device's buffer for pictures."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    argv = [program, "-m", model, "--mmproj", path, "--port", port, "-t", 1, "-c", 512, "-np", 1]
    argv += ["--fit", "off", "--flash-attn", "on", "-lv", 4, *args]
    log = ""
    with subprocess.Popen(
        [str(a) for a in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "OMP_WAIT_POLICY": "passive", **env},
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                log += line
                if "listening on" in line:
                    break
        finally:
            process.kill()
    found = re.findall(r"reserve_compute_meta: +(\w+) compute buffer size = +([\d.]+) MiB", log)
    assert found, log[-4000:]
    return {name: float(mib) * MIB for name, mib in found}


def planned(models: SimpleNamespace, machine: Any, path: Path, layers: int) -> dict[str, int]:
    model: ModelInfo = models.dense27
    request = HostRequest(model.path, ctx=4096, mmproj=path)
    plan = outline(request, model, machine, "srhpm", DraftChoice(None))
    return {use.device: use.projector for use in memory(put(plan, layers, 0, CPU))}


@pytest.mark.server
@pytest.mark.parametrize("encoder", ENCODERS)
def test_as_the_server_reserves(
    encoder: str,
    models: SimpleNamespace,
    machines: SimpleNamespace,
    server_dir: Path,
    smollm2: Path,
    tmp_path: Path,
) -> None:
    program = next(p for p in server_dir.iterdir() if p.stem == "test-server")
    path = write(tmp_path / "mmproj.gguf", ENCODERS[encoder])
    weights = sum(int(t.n_bytes) for t in gguf.GGUFReader(path).tensors)
    found = projector_of(path)
    assert found.known
    assert found.weights == pytest.approx(weights, rel=TOLERANCE)

    machine = replace(machines.make(64), gpus=(Gpu(GPU, "stand-in", 8 << 30, 8 << 30, "nvml"),))
    real = logged(program, smollm2, path, "--no-mmproj-offload", "-ngl", "0")
    assert found.compute == pytest.approx(real["CPU"], rel=0.1)
    uses = planned(models, machine, path, 0)
    assert uses[GPU] == 0
    assert uses[CPU] == pytest.approx(weights + real["CPU"], rel=TOLERANCE)

    real = logged(program, smollm2, path, "-ngl", "2", STANDIN_MEMORY="4096")
    uses = planned(models, machine, path, 2)
    assert uses[GPU] == pytest.approx(weights + real[GPU], rel=TOLERANCE)
    assert uses[CPU] == pytest.approx(real["CPU"], rel=TOLERANCE)
    path.unlink()  # a hundred megabytes


def test_what_is_not_known_is_estimated(tmp_path: Path) -> None:
    """Encoders for pictures of any size; sizes that no encoder has; what is no projector."""
    small = Encoder("mlp", 32, 8, 64, 128, 1)
    assert projector_of(write(tmp_path / "known.gguf", small)).known
    for i, other in enumerate(
        (small._replace(kind="qwen2.5vl_merger"), small._replace(inner=1 << 22, layers=0))
    ):
        found = projector_of(write(tmp_path / f"{i}.gguf", other))
        assert (found.known, found.compute) == (False, 128 * MIB)
    (tmp_path / "zeros.gguf").write_bytes(bytes(1000))
    assert not projector_of(tmp_path / "zeros.gguf").known


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    small = Encoder("mlp", 32, 8, 64, 128, 1)
    before = projector_of(write(path, small))
    assert projector_of(write(path, small._replace(side=64))).compute > before.compute

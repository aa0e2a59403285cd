"""Any set of layers on a GPU: where a model's graph changes sides, and that passes over several
tokens give each the logits it has alone. The GPU is a stand-in (native/tests/stand-in-gpu.h)."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

Quantized = Callable[[str, str], Path]

SET, SIZE, RUNS = "1,3-4,out", 4, 3


def passes(
    server_dir: Path, model: Path, layers: int, *args: str, **env: str
) -> subprocess.CompletedProcess[str]:
    """test-passes with so many layers on the GPU; ``args`` are its options and positions."""
    settings = {"SRHPM_EXACT": "8", "OMP_WAIT_POLICY": "passive", **env}
    return subprocess.run(
        [str(server_dir / "test-passes"), str(model), "--gpu-layers", str(layers), *args],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def graphs(done: subprocess.CompletedProcess[str]) -> float:
    """Computed on the GPU in a pass over eight tokens; between any two the CPU computes."""
    found = re.search(r"([\d.]+) graphs on the GPU in a pass over 8", done.stdout)
    assert done.returncode == 0 and found, done.stdout + done.stderr
    return float(found[1])


@pytest.mark.parametrize("kind", ["Q4_K_M", "IQ3_S", "F16"])
@pytest.mark.parametrize("arch", ["qwen3", "qwen35"])
def test_passes_over_a_set(
    server_dir: Path, tiny_quantized: Quantized, arch: str, kind: str
) -> None:
    """As computed alone, for both caches, across the steps in which they grow; each run of layers
    is one graph."""
    model, caches = tiny_quantized(arch, kind), ("--kv", "f16,q8_0", "--fa", "on,off")
    done = passes(server_dir, model, SIZE, *caches, "236", "470", SRHPM_GPU_LAYERS=SET)
    assert done.stdout.count("all equal") == 4, done.stdout + done.stderr
    assert graphs(done) == RUNS


@pytest.mark.parametrize("arch", ["qwen3", "qwen35"])
def test_each_tensor(server_dir: Path, tiny_quantized: Quantized, arch: str) -> None:
    model = tiny_quantized(arch, "Q4_K_M")
    args = ("--threads", "2", "--tensors", "60")
    done = passes(server_dir, model, SIZE, *args, SRHPM_GPU_LAYERS=SET)
    assert done.stdout.count("all equal") == 1, done.stdout + done.stderr


@pytest.mark.parametrize("arch", ["qwen3", "qwen35", "qwen3moe"])
def test_only_products_move_to_the_gpu(
    server_dir: Path, tiny_quantized: Quantized, arch: str
) -> None:
    """Upstream moves a norm per head of the layers in RAM, too, once its rows (heads times tokens)
    are 32: a crossing there and back in each layer."""
    model = tiny_quantized(arch, "Q4_K_M")
    ours, upstreams = (
        graphs(passes(server_dir, model, 1, "60", SRHPM_OFFLOAD=rule)) for rule in ("", "any")
    )
    layers = 3 if arch == "qwen3moe" else 8
    assert ours == 1  # the head
    assert upstreams == 1 + layers


def test_other_models_are_placed_as_usual(server_dir: Path, tiny_quantized: Quantized) -> None:
    """A drafter in the same process has another number of layers on the GPU."""
    model = tiny_quantized("qwen3", "Q4_K_M")
    assert graphs(passes(server_dir, model, 3, "60", SRHPM_GPU_LAYERS=SET)) == 1


@pytest.mark.parametrize(
    ("text", "layers", "why"),
    [
        ("3,x", 2, '"x": expected a layer, a range'),
        ("3, 5", 2, '" 5": expected'),
        ("3,,5", 2, '"": expected'),
        ("-1", 1, '"-1": expected'),
        ("5-3", 1, "ends before it begins"),
        ("8", 1, "has layers 0 to 7"),
        ("3,2-4", 4, '"2-4": it was named before'),
        ("out,out", 2, '"out": it was named before'),
        ("3@1", 1, "may use 1 devices"),
        ("3@gpu", 1, '"3@gpu": expected'),
        ("99999", 1, '"99999": expected'),
    ],
)
def test_no_such_set(
    server_dir: Path, tiny_quantized: Quantized, text: str, layers: int, why: str
) -> None:
    model = tiny_quantized("qwen3", "Q4_K_M")
    done = passes(server_dir, model, layers, "60", SRHPM_GPU_LAYERS=text)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "error loading model" in line]
    assert "srhpm: SRHPM_GPU_LAYERS has" in line and why in line

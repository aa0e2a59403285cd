"""Whole models: a pass over 2 to 8 tokens gives each of them the logits of a pass over it alone, to
the last bit, also after rejected tokens were dropped and where the cache grows by a step."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.server

# So that passes cross 256 (with all tokens accepted) and 512 (with half of them rejected).
CROSSING = ("236", "470")
ARCHITECTURES = ("qwen3", "qwen3moe", "qwen35", "qwen35moe", "qwen3next")
CACHES = ("--kv", "f16,q8_0", "--fa", "on,off")

Quantized = Callable[[str, str], Path]


def passes(
    server_dir: Path, model: Path, *args: str, exact: int = 8, **env: str
) -> subprocess.CompletedProcess[str]:
    # Waiting threads sleep: on a busy machine spinning ones take the cores from the working.
    settings = {"SRHPM_EXACT": str(exact), "OMP_WAIT_POLICY": "passive", **env}
    return subprocess.run(
        [str(server_dir / "test-passes"), str(model), *args],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def all_equal(done: subprocess.CompletedProcess[str], settings: int) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("all equal") == settings


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q4_0", "IQ3_S", "Q8_0", "F16", "BF16"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_tiny_models(server_dir: Path, tiny_quantized: Quantized, arch: str, kind: str) -> None:
    model = tiny_quantized(arch, kind)
    all_equal(passes(server_dir, model, *CACHES, "--threads", "1,2", *CROSSING), 8)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_each_tensor(server_dir: Path, tiny_quantized: Quantized, arch: str) -> None:
    """What comes before the logits, too: a small difference may not reach them."""
    model = tiny_quantized(arch, "Q4_K_M")
    all_equal(passes(server_dir, model, *CACHES, "--threads", "2", "--tensors", *CROSSING), 4)


@pytest.mark.parametrize("kind", ["Q4_0", "IQ3_S", "Q8_0"])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_upstreams_kernels(
    server_dir: Path, tiny_quantized: Quantized, arch: str, kind: str
) -> None:
    model = tiny_quantized(arch, kind)
    all_equal(passes(server_dir, model, "--threads", "2", *CROSSING, SRHPM_KERNELS="off"), 1)


def test_real_model(server_dir: Path, smollm2: Path) -> None:
    all_equal(passes(server_dir, smollm2, *CACHES, "--threads", "2", *CROSSING), 4)


def test_far_into_the_context(server_dir: Path, tiny_quantized: Quantized) -> None:
    model = tiny_quantized("qwen3moe", "Q4_K_M")
    all_equal(passes(server_dir, model, "--threads", "2", "4070"), 1)


@pytest.mark.parametrize(
    ("flash", "operation"),
    [("on", "FLASH_ATTN_EXT of f32, f16, f16, f16"), ("off", "kq_soft_max-0: SOFT_MAX")],
)
def test_differences_show(server_dir: Path, smollm2: Path, flash: str, operation: str) -> None:
    """Upstream's choice by batch size is seen, and the first operation that shows it named."""
    args = ("--fa", flash, "--threads", "2", "236")
    done = passes(server_dir, smollm2, *args, exact=0, SRHPM_KERNELS="off")
    assert done.returncode == 1, done.stdout + done.stderr
    # after what differs: logits, and mostly what is kept for the next token
    said = [line for line in done.stdout.splitlines() if not line.startswith(("logits", "states"))]
    assert operation in said[0]

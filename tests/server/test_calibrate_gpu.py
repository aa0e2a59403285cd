"""``bench-gpu`` on the stand-in GPU (native/tests/stand-in-gpu.h), as ``calibrate`` runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from srhpm_plugin.calibrate import GpuSpeed, gpus
from srhpm_plugin.calibrate.data import GPU_WIDTHS
from srhpm_plugin.machine.types import Gpu

MIB = 1 << 20


def measure(server_dir: Path, mib: int, name: str) -> tuple[dict[str, GpuSpeed], list[str]]:
    program = server_dir / ("test-bench-gpu" + (".exe" if sys.platform == "win32" else ""))
    gpu = Gpu(name, "stand-in", mib * MIB, mib * MIB, "llama-server --list-devices")
    env = {**os.environ, "STANDIN_MEMORY": str(mib)}
    return gpus.measure(program, [gpu], 2, 1e9, lambda _name: None, clock=lambda: 0.0, env=env)


def test_everything_is_measured(server_dir: Path) -> None:
    found, _ = measure(server_dir, 512, "STANDIN0")
    speed = found["STANDIN0"]
    assert speed.launch_ms > 0
    assert speed.crossing_ms is not None  # none at all costs nothing: graphs were split
    assert speed.up_bytes_s and speed.down_bytes_s
    assert "Q4_K" in speed.products
    for kind, table in speed.products.items():
        assert sorted(table) == list(GPU_WIDTHS)
        assert min(table.values()) > 0 and speed.gflop_s[kind] > 0


@pytest.mark.parametrize("mib", [2, 24])
def test_little_memory(server_dir: Path, mib: int) -> None:
    """It is not filled: what does not go into a part of it is left out, and said."""
    found, left_out = measure(server_dir, mib, "STANDIN0")
    speed = found["STANDIN0"]
    assert speed.launch_ms > 0 and speed.crossing_ms is not None
    assert speed.products == {}
    assert "GPU STANDIN0: Q4_K weights: too little memory is free" in left_out
    assert (speed.up_bytes_s is None) == (mib == 2)


def test_no_such_gpu(server_dir: Path) -> None:
    assert measure(server_dir, 512, "CUDA7") == ({}, ["GPU CUDA7: there is no GPU CUDA7"])

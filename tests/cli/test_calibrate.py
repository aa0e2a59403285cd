"""``calibrate`` as a user sees it, with stand-ins for what it runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.calibrate import Calibration, GpuSpeed, load, path, save
from srhpm_plugin.machine.types import Machine

Shell = Callable[..., tuple[int, str, str]]
Built = Callable[..., Path]
TABLE = {1: 0.002, 4: 0.003, 512: 0.1}  # nanoseconds per byte of a GPU


def test_without_a_build(shell: Shell) -> None:
    code, out, err = shell("calibrate")
    assert (code, out) == (1, "")
    assert "type: srhpm-plugin native build" in err
    assert not path().exists()


def test_measured_and_kept(shell: Shell, built: Built) -> None:
    log = built()
    code, out, err = shell("calibrate", "--json")
    assert code == 0, err
    data = json.loads(out)
    assert data["holds"] is True
    assert data["gpus"] is None
    assert data["products"]["ours"]["Q4_K"]["1"] == pytest.approx(0.05)
    passes = data["passes"]["ours"]
    assert (passes["layer"]["1"], passes["build"]) == pytest.approx((0.1, 0.02))
    # 0.001 ms a position and token, 8 heads of 64 elements in 24 layers
    assert data["attention"]["ours"]["query"] == pytest.approx(1000 / 8 / 64 / 24)
    assert data["attention"]["ours"]["cell"] == pytest.approx(0, abs=1e-6)
    serving = data["serving"]
    assert all(serving[name] >= 0 for name in ("step", "sample", "draft"))
    kept = load()
    assert kept is not None
    assert kept.to_json()["serving"] == serving
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    kernels = {kernels for name, _, kernels in runs if name == "llama-bench"}
    assert kernels == {"speed", "off"}, "passes of ours and of upstream's"

    count = len(runs)
    code, out, err = shell("calibrate")
    assert code == 0
    assert "still hold" in err
    assert "Q4_K" in out
    assert len(log.read_text().splitlines()) == count, "nothing was run again"

    code, out, err = shell("calibrate", "--force", "--json")
    assert code == 0
    assert len(log.read_text().splitlines()) > count


def test_old_figures(shell: Shell, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    built()
    assert shell("calibrate", "--json")[0] == 0
    monkeypatch.setenv("SRHPM_ISA", "avx2")
    code, out, err = shell("calibrate", "--show", "--json")
    assert code == 0
    assert json.loads(out)["holds"] is False
    assert "SRHPM_ISA changed since; type: srhpm-plugin calibrate" in err
    code, out, err = shell("calibrate", "--json")
    assert "no longer hold: SRHPM_ISA changed" in err
    assert json.loads(out)["holds"] is True


def test_what_it_would_run(shell: Shell, built: Built) -> None:
    log = built()
    code, out, err = shell("calibrate", "--dry-run")
    assert (code, err) == (0, "")
    assert "llama-bench" in out
    assert not log.exists()
    code, out, _ = shell("calibrate", "--dry-run", "--json")
    assert len(json.loads(out)["would_run"]) == 6
    assert not path().exists()


def test_nothing_to_show(shell: Shell, built: Built) -> None:
    built()
    code, _, err = shell("calibrate", "--show")
    assert code == 1
    assert "type: srhpm-plugin calibrate" in err


def test_a_type_that_fails_keeps_nothing(shell: Shell, built: Built) -> None:
    built(broken="Q4_K")
    code, _, err = shell("calibrate")
    assert code == 1
    assert "this type is broken" in err
    assert not path().exists()


def test_gpus_are_shown(
    shell: Shell, calibration: Callable[..., Calibration], measured_machine: Machine
) -> None:
    card = GpuSpeed("a GPU", 8 << 30, 0.012, 0.034, 12e9, 13e9, {"Q4_K": TABLE}, {"Q4_K": 9000})
    bare = GpuSpeed("another", 1 << 30, 0.02)
    save(calibration(measured_machine, gpus={"CUDA0": card, "CUDA1": bare}))
    code, out, _ = shell("calibrate", "--show")
    assert code == 0
    words = " ".join(out.split())
    assert "CUDA0 (a GPU): Q4_K 500 GB/s at M=1, 9000 GFLOP/s at M=512" in words
    assert "12.0 GB/s to it, 13.0 GB/s from it" in words
    assert "a change between CPU and GPU 0.034 ms" in words
    assert "CUDA1 (another): a launch 0.020 ms" in words
    code, out, _ = shell("calibrate", "--show", "--json")
    assert json.loads(out)["gpus"]["CUDA0"]["crossing_ms"] == 0.034

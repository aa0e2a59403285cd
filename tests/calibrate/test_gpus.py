"""GPUs as ``bench-gpu`` describes them: what is taken, what is left out, and when it holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from srhpm_plugin.calibrate import Calibration, GpuSpeed, gpu_speed, gpus, gpus_changed, run
from srhpm_plugin.calibrate.store import gpu_facts
from srhpm_plugin.machine.types import Gpu, Machine

GPU = Gpu("CUDA0", "a GPU", 8 << 30, 7 << 30, "nvml")
OTHER = replace(GPU, name="CUDA1")

# As the program said of the stand-in GPU with 4096 MiB; one type.
SAID = [
    '{"event": "launch", "name": "STANDIN0", "description": "stand-in for a GPU", "ms": 0.000491}',
    '{"event": "crossing", "ms": 0.000271}',
    '{"event": "link", "up_bytes_s": 12652429191, "down_bytes_s": 12160381311}',
    '{"event": "product", "type": "Q4_K", "m": 1, "ms": 8.864490, "bytes": 264241152, '
    '"flop": 939524096}',
    '{"event": "product", "type": "Q4_K", "m": 4, "ms": 29.124325, "bytes": 264241152, '
    '"flop": 3758096384}',
    '{"event": "product", "type": "Q4_K", "m": 512, "ms": 31.959742, "bytes": 9437184, '
    '"flop": 17179869184}',
    '{"event": "left_out", "what": "F16 weights", "why": "too little memory is free"}',
    '{"event": "end"}',
]
Fake = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path) -> Fake:
    """``program(lines, broken=NAME)``: says the lines; of that device half of them, then fails."""
    if sys.platform == "win32":
        pytest.skip("a text file is no program on Windows")

    def make(said: list[str], broken: str = "", at: int = 0) -> Path:
        path = tmp_path / "bench-gpu"
        path.write_text(
            f"#!{sys.executable}\nimport sys\nsaid = {said!r}\n"
            f"if sys.argv[1] == {broken!r}:\n    print(*said[:{at}], sep='\\n')\n"
            "    sys.exit('bench-gpu: the driver says no')\nprint(*said, sep='\\n')\n"
        )
        path.chmod(0o755)
        return path

    return make


def measure(program: Path, *devices: Gpu) -> tuple[dict[str, GpuSpeed], list[str]]:
    return gpus.measure(program, devices, 2, 100.0, lambda _name: None, clock=lambda: 0.0)


def test_figures(program: Fake) -> None:
    found, left_out = measure(program(SAID), GPU)
    speed = found["CUDA0"]
    assert (speed.launch_ms, speed.crossing_ms) == (0.000491, 0.000271)
    assert (speed.up_bytes_s, speed.down_bytes_s) == (12652429191, 12160381311)
    assert speed.products["Q4_K"][1] == pytest.approx(8.864490e6 / 264241152)
    assert speed.gflop_s["Q4_K"] == pytest.approx(17179869184 / 31.959742 / 1e6)
    assert left_out == ["GPU CUDA0: F16 weights: too little memory is free"]
    assert GpuSpeed.from_json(json.loads(json.dumps(speed.to_json()))) == speed


def test_one_that_fails_leaves_the_others(program: Fake) -> None:
    found, left_out = measure(program(SAID, "CUDA0"), GPU, OTHER)
    assert list(found) == ["CUDA1"]
    assert "GPU CUDA0: the driver says no" in left_out


def test_what_was_said_before_it_failed_is_kept(program: Fake) -> None:
    found, left_out = measure(program(SAID, "CUDA0", at=4), GPU)
    assert found["CUDA0"].crossing_ms == 0.000271
    assert found["CUDA0"].products == {}  # of one width only
    assert left_out == ["GPU CUDA0: the driver says no"]


def test_no_measurement(program: Fake) -> None:
    assert measure(program(["hello", '{"event": "launch", "ms": -1}']), GPU) == (
        {},
        ["GPU CUDA0: it said what is no measurement"],
    )


def test_no_time() -> None:
    found = gpus.measure(Path("no"), [GPU], 2, 10.0, lambda _n: None, clock=lambda: 9.5)
    assert found == ({}, ["GPU CUDA0: no time was left"])


def test_kept_for_the_same_gpus(
    measured_machine: Machine, calibration: Callable[..., Calibration], program: Fake
) -> None:
    machine = replace(measured_machine, gpus=(GPU,))
    found, _ = measure(program(SAID), GPU)
    made = calibration(machine, gpus=found)
    made = replace(made, about={**made.about, "gpus": gpu_facts(machine)})
    made = Calibration.from_json(json.loads(json.dumps(made.to_json())))
    assert gpus_changed(made, machine) is None
    assert gpu_speed(made, GPU) == found["CUDA0"]
    another = replace(GPU, description="another GPU")
    assert gpus_changed(made, replace(machine, gpus=(another,))) == "the GPUs changed since"
    assert gpu_speed(made, another) is None
    assert gpu_speed(made, OTHER) is None


def test_without_gpus_nothing_runs(measured_machine: Machine) -> None:
    found = run.Programs(Path("no"), Path("no"), Path("no"), Path("no"))
    assert run._gpus(found, measured_machine, 2, 9.0, print, lambda: 0.0) == (None, [])


def test_a_build_without_the_program(measured_machine: Machine) -> None:
    found = run.Programs(Path("no"), Path("no"), Path("no"), None)
    machine = replace(measured_machine, gpus=(GPU,))
    speeds, (why,) = run._gpus(found, machine, 2, 9.0, print, lambda: 0.0)
    assert speeds is None and "native build" in why


def test_one_that_hangs(program: Fake) -> None:
    path = program(SAID[:2])
    path.write_text(path.read_text() + "sys.stdout.flush()\nimport time\ntime.sleep(60)\n")
    found, left_out = gpus.measure(path, [GPU], 2, 2.0, lambda _n: None, clock=lambda: 0.0)
    assert found["CUDA0"].crossing_ms == 0.000271
    assert left_out == ["GPU CUDA0: it was not done within 2 s"]

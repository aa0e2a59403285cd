"""What costs speed: found in machines laid out as folders, with the command that mends it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from srhpm_plugin.calibrate.data import Calibration, Read
from srhpm_plugin.cli import _speed
from srhpm_plugin.cli._check import Check
from srhpm_plugin.cli._gpu_state import check_gpu_state
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.machine.tree import Tree
from srhpm_plugin.machine.types import Machine

GIB = 1 << 30
THP = "sys/kernel/mm/transparent_hugepage"
POLICY = "sys/devices/system/cpu/cpufreq/policy"
DMI = "run/udev/data/+dmi:id"


@pytest.fixture
def tree(tmp_path: Path) -> Callable[..., Tree]:
    """``tree({path: content, ...})`` lays files out."""

    def write(files: dict[str, str]) -> Tree:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return Tree(tmp_path)

    return write


def read(*reads: tuple[int, str, float]) -> Calibration:
    """A calibration of which only the reads matter."""
    empty: dict[str, object] = {"about": {}, "taken": 0.0, "seconds": 0.0, "load": None}
    rest = dict.fromkeys(("products", "attention", "passes", "serving"))
    return Calibration(threads=8, reads=tuple(Read(*r) for r in reads), **empty, **rest)  # type: ignore[arg-type]


def with_memory(**changes: object) -> Machine:
    machine = probe()
    return dataclasses.replace(machine, memory=dataclasses.replace(machine.memory, **changes))


def only(checks) -> Check:
    (check,) = checks
    return check


@pytest.mark.parametrize(
    ("mode", "state"),
    [("never", "warning"), ("always", "ok"), ("madvise", "ok"), ("unknown", "ok")],
)
def test_huge_pages(mode, state, tree):
    check = only(_speed.check_huge_pages(with_memory(huge_pages=mode), tree({})))
    assert check.state == state
    assert (check.fix is None) == (state == "ok")
    assert "measured" not in check.detail


def test_huge_pages_that_are_never_made(tree):
    laid = tree({f"{THP}/defrag": "always defer defer+madvise madvise [never]\n"})
    check = only(_speed.check_huge_pages(with_memory(huge_pages="madvise"), laid))
    assert (check.state, check.fix) == ("warning", f"echo madvise | sudo tee /{THP}/defrag")
    laid = tree({f"{THP}/defrag": "always defer [defer+madvise] madvise never\n"})
    assert only(_speed.check_huge_pages(with_memory(huge_pages="madvise"), laid)).ok


def test_the_cost_of_small_pages_is_the_measured_one(tree):
    measured = read((1, "huge", 14.0), (8, "huge", 40.26), (8, "small", 33.04))
    machine = with_memory(huge_pages="never")
    check = only(_speed.check_huge_pages(machine, tree({}), measured))
    assert "(measured here: 33.0 GB/s, 40.3 through huge ones)" in check.detail
    check = only(_speed.check_huge_pages(machine, tree({}), read((8, "system", 33.0))))
    assert "measured" not in check.detail


def cpufreq(driver: str, governor: str, hint: str | None = None, cpus: int = 4) -> dict[str, str]:
    files = {}
    for n in range(cpus):
        files[f"{POLICY}{n}/scaling_driver"] = driver
        files[f"{POLICY}{n}/scaling_governor"] = governor
        if hint:
            files[f"{POLICY}{n}/energy_performance_preference"] = hint
    return files


@pytest.mark.parametrize(
    ("driver", "governor", "hint", "fix"),
    [
        ("acpi-cpufreq", "powersave", None, "echo performance | sudo tee /{}*/scaling_governor"),
        (
            "intel_cpufreq",
            "conservative",
            None,
            "echo performance | sudo tee /{}*/scaling_governor",
        ),
        ("acpi-cpufreq", "schedutil", None, None),
        ("acpi-cpufreq", "performance", None, None),
        ("intel_pstate", "powersave", "balance_performance", None),
        ("intel_pstate", "performance", "power", None),
        (
            "amd-pstate-epp",
            "powersave",
            "power",
            "echo balance_performance | sudo tee /{}*/energy_performance_preference",
        ),
    ],
)
def test_clock(tree, driver, governor, hint, fix):
    check = only(_speed.check_clock(tree(cpufreq(driver, governor, hint))))
    assert check.ok == (fix is None)
    assert check.fix == (fix and fix.format(POLICY))


def test_clock_that_nobody_sets(tree):
    assert list(_speed.check_clock(tree({}))) == []


def hybrid(allowed: str) -> dict[str, str]:
    """Two performance cores of two threads, four others."""
    files = {f"sys/devices/system/cpu/cpu{n}/topology/core_cpus_list": str(n) for n in range(4, 8)}
    for n in range(4):
        pair = "0-1" if n < 2 else "2-3"
        files[f"sys/devices/system/cpu/cpu{n}/topology/core_cpus_list"] = pair
    return files | {
        "sys/devices/system/cpu/online": "0-7",
        "sys/devices/cpu_core/cpus": "0-3",
        "sys/devices/cpu_atom/cpus": "4-7",
        "proc/self/status": f"Cpus_allowed_list:\t{allowed}\n",
        "proc/meminfo": "MemTotal: 1000000 kB\nMemAvailable: 900000 kB\n",
    }


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ("0-7", "the 2 performance cores of 6"),
        ("1-2,5", "the 2 performance cores of 6"),
        ("2-7", "1 of 2 performance cores"),
        ("4-7", "0 of 2 performance cores"),
    ],
)
def test_performance_cores(tree, allowed, words):
    laid = tree(hybrid(allowed))
    check = only(_speed.check_cores(probe(root=laid.root), laid))
    assert words in check.detail
    assert check.ok == ("the 2" in words)
    assert check.fix == (None if check.ok else "taskset --cpu-list --pid 0,1,2,3 $$")


def test_equal_cores_say_nothing(tree):
    files = hybrid("4-7")
    del files["sys/devices/cpu_core/cpus"]
    laid = tree(files)
    assert list(_speed.check_cores(probe(root=laid.root), laid)) == []


def slots(*modules: tuple[int, str] | None, form: str = "SODIMM") -> str:
    lines = ["E:ID_VENDOR=x", f"E:MEMORY_ARRAY_NUM_DEVICES={len(modules)}"]
    for n, module in enumerate(modules):
        if module is None:
            lines += [f"E:MEMORY_DEVICE_{n}_PRESENT=0", f"E:MEMORY_DEVICE_{n}_LOCATOR=x"]
        else:
            gib, locator = module
            lines += [
                f"E:MEMORY_DEVICE_{n}_SIZE={gib * GIB}",
                f"E:MEMORY_DEVICE_{n}_FORM_FACTOR={form}",
                f"E:MEMORY_DEVICE_{n}_LOCATOR={locator}",
            ]
    return "\n".join(lines)


def test_one_module_is_one_channel(tree):
    laid = tree({DMI: slots((16, "DIMM 0"), None)})
    check = only(_speed.check_modules(laid))
    assert (check.state, check.detail) == (
        "warning",
        "one module of 16.00 GiB: memory is read through one channel",
    )
    assert check.fix == "add a module of 16.00 GiB in a slot of the other channel"
    check = only(_speed.check_modules(laid, read((1, "huge", 15.0), (4, "huge", 19.04))))
    assert check.detail.endswith("; read here at 19.0 GB/s")
    assert only(_speed.check_modules(tree({DMI: slots((16, "DIMM 0"))}))).fix is None


def test_modules_on_one_channel(tree):
    both = slots((8, "ChannelA-DIMM0"), (8, "ChannelA-DIMM1"), None, None)
    check = only(_speed.check_modules(tree({DMI: both})))
    assert (check.state, "channel A" in check.detail) == ("warning", True)
    for other in ("ChannelB-DIMM0", "somewhere"):
        check = only(_speed.check_modules(tree({DMI: slots((8, "ChannelA-DIMM0"), (8, other))})))
        assert (check.state, check.detail) == ("ok", "2 modules, 16.00 GiB")


@pytest.mark.parametrize(
    "text", ["", "E:ID_VENDOR=x", "E:MEMORY_DEVICE_0_SIZE=", slots((8, "A"), form="Row Of Chips")]
)
def test_modules_of_which_nothing_is_known(tree, text):
    assert list(_speed.check_modules(tree({DMI: text}))) == []


def test_memory(tree):
    roomy = {"total": 64 * GIB, "free": 32 * GIB, "swap_used": 0, "cgroup_limit": None}
    laid = tree({"proc/self/status": ""})

    def check(**changes) -> Check:
        return only(_speed.check_memory(with_memory(**{**roomy, **changes}), laid))

    assert (check().state, check().detail) == ("ok", "32.00 GiB of 64.00 GiB free")
    assert "limited to 40.00 GiB" in check(cgroup_limit=40 * GIB).detail
    assert check(free=GIB).state == "warning"
    assert check(swap_used=6 * GIB).ok, "what never wakes up"
    swapped = check(swap_used=7 * GIB)
    assert swapped.state == "warning"
    assert "7.00 GiB swapped out" in swapped.detail
    assert swapped.fix == "sudo swapoff --all && sudo swapon --all"
    # That much has no room to come back.
    assert check(swap_used=17 * GIB).fix == "ps -eo rss,comm --sort=-rss | head"


def test_waiting_for_memory_is_the_kernels_figure(tree):
    machine = with_memory(total=64 * GIB, free=32 * GIB, swap_used=0, cgroup_limit=None)
    pressure = "some avg10=9.00 avg60={} avg300=0.10 total=1\nfull avg10=0 avg60=50.00 total=0\n"
    calm = tree({"proc/pressure/memory": pressure.format("0.30")})
    assert only(_speed.check_memory(machine, calm)).ok
    check = only(
        _speed.check_memory(machine, tree({"proc/pressure/memory": pressure.format("12.34")}))
    )
    assert check.state == "warning"
    assert "programs waited for memory 12.3 % of the last minute" in check.detail


class Driver:
    """NVML of one card; calls that are not given raise as the real ones do."""

    class NVMLError(Exception):
        pass

    def __init__(self, **answers: object) -> None:
        self.answers = answers
        self.closed = False

    def nvmlInit(self) -> None:
        pass

    def nvmlShutdown(self) -> None:
        self.closed = True

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> object:
        def call(handle: int) -> object:
            if name not in self.answers:
                raise self.NVMLError("not supported")
            return self.answers[name]

        return call


BUSY = SimpleNamespace(gpu=97, memory=50)
REST = SimpleNamespace(gpu=0, memory=0)


@pytest.mark.parametrize(
    ("answers", "words", "fix"),
    [
        ({}, None, None),
        ({"State": 8, "Use": REST}, None, None),
        ({"State": 2, "Use": BUSY}, None, None),
        ({"State": 8, "Use": BUSY}, "P8 although it is 97 % busy", "--reset-gpu-clocks"),
        ({"Reasons": 0x1}, None, None),
        ({"Reasons": 0x40, "State": 8, "Use": BUSY}, "too hot", "--query"),
        ({"Limit": 450_000, "Default": 450_000}, None, None),
        ({"Limit": 200_000, "Default": 450_000}, "limited to 200 W", "--power-limit=450"),
    ],
)
def test_nvidia(tree, answers, words, fix):
    names = {
        "State": "nvmlDeviceGetPerformanceState",
        "Use": "nvmlDeviceGetUtilizationRates",
        "Reasons": "nvmlDeviceGetCurrentClocksThrottleReasons",
        "Limit": "nvmlDeviceGetPowerManagementLimit",
        "Default": "nvmlDeviceGetPowerManagementDefaultLimit",
    }
    driver = Driver(**{names[key]: value for key, value in answers.items()})
    found = list(check_gpu_state(tree({}), lambda: driver))
    assert driver.closed
    if words is None:
        assert found == []
    else:
        check = only(found)
        assert words in check.detail
        assert fix in check.fix


def test_amd(tree):
    level = "sys/class/drm/card1/device/power_dpm_force_performance_level"

    def none():
        raise ImportError

    assert list(check_gpu_state(tree({level: "auto\n"}), none)) == []
    check = only(check_gpu_state(tree({level: "low\n"}), none))
    assert check.fix == f"echo auto | sudo tee /{level}"

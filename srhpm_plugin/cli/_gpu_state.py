"""What ``srhpm-plugin doctor`` says of GPUs that run slower than they could."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ..machine.tree import Tree
from ._check import Check

# Performance states go from P0, the fastest, to P15; without work P8 is normal.
_SLOW_STATE = 5
_BUSY = 50  # percent
# Reasons for lower clocks that are no normal saving of power (NVML's bits).
_REASONS = {
    0x08: "held down by the hardware",
    0x20: "too hot",
    0x40: "too hot",
    0x80: "power brake",
}
_REASON_CALLS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",  # drivers before 535
)
_LEVEL = "device/power_dpm_force_performance_level"


def check_gpu_state(
    tree: Tree, load: Callable[[], Any] = lambda: importlib.import_module("pynvml")
) -> Iterator[Check]:
    """NVIDIA's through the driver, AMD's through sysfs; nothing is said of those at full speed."""
    yield from _amd(tree)
    try:
        nvml = load()
        nvml.nvmlInit()
    except Exception:  # no library, or no driver: said by the check of the machine
        return
    try:
        for index in range(nvml.nvmlDeviceGetCount()):
            yield from _nvidia(nvml, index)
    except nvml.NVMLError:
        return
    finally:
        nvml.nvmlShutdown()


def _nvidia(nvml: Any, index: int) -> Iterator[Check]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(*calls: str) -> Any:
        """The first answer; ``None`` where the card or the driver has none."""
        for call in calls:
            try:
                return getattr(nvml, call)(handle)
            except (AttributeError, nvml.NVMLError):
                continue
        return None

    name = f"GPU {index}"
    limit = ask("nvmlDeviceGetPowerManagementLimit")
    default = ask("nvmlDeviceGetPowerManagementDefaultLimit")
    if limit and default and limit < default:
        detail = f"limited to {limit / 1000:.0f} W, {default / 1000:.0f} W is its default"
        fix = f"sudo nvidia-smi --id={index} --power-limit={default // 1000}"
        yield Check(name, "warning", detail, fix)
    reasons = ask(*_REASON_CALLS) or 0
    why = dict.fromkeys(words for bit, words in _REASONS.items() if reasons & bit)
    if why:
        query = f"nvidia-smi --id={index} --query --display=PERFORMANCE,TEMPERATURE,POWER"
        yield Check(name, "warning", f"its clock is lowered: {', '.join(why)}", query)
        return
    state = ask("nvmlDeviceGetPerformanceState")
    use = ask("nvmlDeviceGetUtilizationRates")
    if state is not None and use is not None and use.gpu >= _BUSY and state >= _SLOW_STATE:
        yield Check(
            name,
            "warning",
            f"in the low-power state P{state} although it is {use.gpu} % busy",
            f"sudo nvidia-smi --id={index} --reset-gpu-clocks",
        )


def _amd(tree: Tree) -> Iterator[Check]:
    for card in tree.children("sys/class/drm", r"card[0-9]{1,3}"):
        if tree.text(f"sys/class/drm/{card}/{_LEVEL}") == "low":
            yield Check(
                f"GPU {card}",
                "warning",
                "held at its lowest clocks",
                f"echo auto | sudo tee /sys/class/drm/{card}/{_LEVEL}",
            )

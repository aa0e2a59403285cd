"""What ``srhpm-plugin doctor`` looks at that costs speed: pages, clocks, cores, modules, swap.

Costs are said where they were measured: by ``srhpm-plugin calibrate``, or by the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..calibrate.data import Calibration
from ..machine.cores import allowed_cpus, read_cores
from ..machine.tree import Tree
from ..machine.types import Machine
from ..planner.units import size
from ._check import Check

GIB = 1 << 30
# Less hardly holds the smallest useful model with its context.
_RAM_LEAST = 2 * GIB
_SWAP_SHARE = 0.1  # of RAM: what never wakes up again lies there on any machine
_STALLED = 1.0  # percent of the last minute

_THP = "sys/kernel/mm/transparent_hugepage"
_FREQUENCY = "sys/devices/system/cpu/cpufreq"
# These choose the clock themselves, and their "powersave" means no lowest clock, see
# Documentation/admin-guide/pm/intel_pstate.rst and amd-pstate.rst of the kernel.
_OWN_CHOICE = ("intel_pstate", "amd-pstate-epp")
_LOW_HINTS = ("power", "balance_power")
_LOW_GOVERNORS = ("powersave", "conservative", "userspace")

_DMI = "run/udev/data/+dmi:id"


def check_huge_pages(
    machine: Machine, tree: Tree, calibration: Calibration | None = None
) -> Iterator[Check]:
    """Large pages make reading weights cheaper."""
    mode = machine.memory.huge_pages
    cost = _pages_cost(calibration)
    if mode == "never":
        detail = f"switched off: weights are read through 4 KiB pages{cost}"
        fix = f"echo madvise | sudo tee /{_THP}/enabled"
        yield Check("huge pages", "warning", detail, fix)
        return
    defrag = re.search(r"\[([a-z+]+)\]", tree.text(f"{_THP}/defrag") or "")
    if mode in ("always", "madvise") and defrag and defrag[1] == "never":
        detail = (
            f"{mode}, but the kernel makes none where memory is in pieces (defrag is never){cost}"
        )
        yield Check("huge pages", "warning", detail, f"echo madvise | sudo tee /{_THP}/defrag")
        return
    yield Check("huge pages", "ok", "not known here" if mode == "unknown" else f"{mode}{cost}")


def _pages_cost(calibration: Calibration | None) -> str:
    best = (
        {
            pages: max((r.gb_s for r in calibration.reads if r.pages == pages), default=0.0)
            for pages in ("huge", "small")
        }
        if calibration
        else {}
    )
    if not all(best.values()) or not best:
        return ""
    return f" (measured here: {best['small']:.1f} GB/s, {best['huge']:.1f} through huge ones)"


def check_clock(tree: Tree) -> Iterator[Check]:
    """Settings that keep the processor from its highest clock."""
    policies = tree.children(_FREQUENCY, r"policy[0-9]{1,5}")
    low: dict[tuple[str, str], int] = {}
    names: set[str] = set()
    for policy in policies:
        driver = tree.text(f"{_FREQUENCY}/{policy}/scaling_driver") or ""
        governor = tree.text(f"{_FREQUENCY}/{policy}/scaling_governor") or ""
        hint = tree.text(f"{_FREQUENCY}/{policy}/energy_performance_preference") or ""
        names.add(governor)
        if driver in _OWN_CHOICE:
            if governor != "performance" and hint in _LOW_HINTS:
                low["energy_performance_preference", hint] = len(low)
        elif governor in _LOW_GOVERNORS:
            low["scaling_governor", governor] = len(low)
    for (file, value), _ in low.items():
        what = "governor" if file == "scaling_governor" else "energy preference"
        better = "performance" if what == "governor" else "balance_performance"
        yield Check(
            "processor clock",
            "warning",
            f"{what} {value}: the clock stays low or rises late",
            f"echo {better} | sudo tee /{_FREQUENCY}/policy*/{file}",
        )
    if names and not low:
        yield Check("processor clock", "ok", f"governor {', '.join(sorted(names))}")


def check_cores(machine: Machine, tree: Tree) -> Iterator[Check]:
    """Performance cores that may not be used; nothing is said where all may."""
    cpu = machine.cpu
    allowed = allowed_cpus(tree)
    strong = [core for core in read_cores(tree) if core.performance]
    if allowed is None or not strong or cpu.performance == cpu.physical:
        return
    lost = [core for core in strong if not core.cpus & allowed]
    if not lost:
        detail = (
            f"plans compute on the {cpu.usable_performance} performance cores "
            f"of {cpu.physical}: the others would hold them up"
        )
        yield Check("threads", "ok", detail)
        return
    cpus = ",".join(str(cpu) for cpu in sorted(c for core in strong for c in core.cpus))
    detail = f"this shell may use {len(strong) - len(lost)} of {len(strong)} performance cores"
    yield Check("threads", "warning", detail, f"taskset --cpu-list --pid {cpus} $$")


def check_modules(tree: Tree, calibration: Calibration | None = None) -> Iterator[Check]:
    """RAM that answers through one channel.

    What modules there are is what udev keeps of the firmware's tables (``dmi_memory_id`` of
    systemd 248 and later), which everybody may read; without it nothing is said.
    """
    facts = _modules(tree)
    speed = max((r.gb_s for r in calibration.reads), default=0.0) if calibration else 0.0
    cost = f"; read here at {speed:.1f} GB/s" if speed else ""
    present = [f for f in facts if f.get("PRESENT") != "0" and f.get("SIZE", "0") != "0"]
    # Memory that is soldered says nothing of its channels.
    if not present or any("DIMM" not in f.get("FORM_FACTOR", "").upper() for f in present):
        return
    total = sum(int(f["SIZE"]) for f in present if f["SIZE"].isdecimal())
    free = len(facts) - len(present)
    if len(present) == 1:
        detail = f"one module of {size(total)}: memory is read through one channel{cost}"
        fix = f"add a module of {size(total)} in a slot of the other channel"
        yield Check("memory channels", "warning", detail, fix if free else None)
        return
    channels = [_channel(f) for f in present]
    if None not in channels and len(set(channels)) == 1:
        detail = f"all {len(present)} modules are on channel {channels[0]}{cost}"
        yield Check(
            "memory channels", "warning", detail, "move half of them to the other channel's slots"
        )
        return
    yield Check("memory channels", "ok", f"{len(present)} modules, {size(total)}")


def _modules(tree: Tree) -> list[dict[str, str]]:
    """The properties of each slot, in the firmware's order."""
    slots: dict[int, dict[str, str]] = {}
    for line in (tree.text(_DMI) or "").splitlines():
        found = re.fullmatch(r"E:MEMORY_DEVICE_([0-9]{1,3})_([A-Z_]+)=(.*)", line)
        if found:
            slots.setdefault(int(found[1]), {})[found[2]] = found[3]
    return [slots[number] for number in sorted(slots)]


def _channel(facts: dict[str, str]) -> str | None:
    for key in ("LOCATOR", "BANK_LOCATOR"):
        found = re.search(r"channel[ _-]?([A-Z0-9])", facts.get(key, ""), re.IGNORECASE)
        if found:
            return found[1].upper()
    return None


def check_memory(machine: Machine, tree: Tree) -> Iterator[Check]:
    """Free RAM, limits, swap, and how long programs waited for memory."""
    memory = machine.memory
    detail = f"{size(memory.free)} of {size(memory.total)} free"
    if memory.cgroup_limit is not None:
        detail += f", limited to {size(memory.cgroup_limit)} by a control group"
    stalled = _stalled(tree)
    swapped = memory.swap_used > _SWAP_SHARE * memory.total
    if swapped:
        detail += f", {size(memory.swap_used)} swapped out"
    if stalled > _STALLED:
        detail += f", programs waited for memory {stalled:.1f} % of the last minute"
    who = "ps -eo rss,comm --sort=-rss | head" if tree.path("proc/self").exists() else None
    if memory.free < _RAM_LEAST:
        yield Check("memory", "warning", f"{detail}: too little for most models", who)
    elif stalled > _STALLED:
        yield Check("memory", "warning", detail, who)
    elif swapped:
        # All of it must find room again.
        back = memory.free > 2 * memory.swap_used and who
        yield Check("memory", "warning", detail, _SWAP_BACK if back else who)
    else:
        yield Check("memory", "ok", detail)


_SWAP_BACK = "sudo swapoff --all && sudo swapon --all"


def _stalled(tree: Tree) -> float:
    """Share of the last minute in which something waited for memory, percent (the kernel's
    pressure stall information); 0 where it is not counted."""
    for line in (tree.text("proc/pressure/memory") or "").splitlines():
        found = re.match(r"some .*\bavg60=([0-9]{1,3}\.[0-9]{1,2})\b", line)
        if found:
            return float(found[1])
    return 0.0

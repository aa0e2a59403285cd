"""Instruction sets that decide which kernels run."""

from __future__ import annotations

import ctypes
import functools
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

from .tree import Tree, fields

# The kernel's names, in the order shown.
_X86 = (
    "sse4_2 avx avx2 fma f16c bmi2 avx_vnni avx_vnni_int8 avx512f avx512bw avx512vl avx512dq "
    "avx512vbmi avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16"
)
_ARM = {
    "asimd": "neon",
    "asimdhp": "fp16",
    "asimddp": "dotprod",
    "i8mm": "i8mm",
    "bf16": "bf16",
    "sve": "sve",
    "sve2": "sve2",
    "sme": "sme",
}
_NAMES = {name: name for name in _X86.split()} | _ARM

# IsProcessorFeaturePresent numbers (winnt.h).
_WINDOWS = {38: "sse4_2", 39: "avx", 40: "avx2", 41: "avx512f", 19: "neon", 43: "dotprod"}

_DARWIN = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.fma": "fma",
    "hw.optional.f16c": "f16c",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.neon": "neon",
    "hw.optional.arm.FEAT_FP16": "fp16",
    "hw.optional.arm.FEAT_DotProd": "dotprod",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
    "hw.optional.arm.FEAT_SME": "sme",
}


def linux_isa(tree: Tree) -> tuple[str, ...]:
    """From the first processor of /proc/cpuinfo."""
    for key, value in fields(tree.text("proc/cpuinfo") or ""):
        if key in ("flags", "Features"):
            present = set(value.split())
            return tuple(ours for name, ours in _NAMES.items() if name in present)
        if key == "isa":  # RISC-V: rv64imafdcv_zicsr...
            base = value.partition("_")[0]
            return ("rvv",) if base.startswith("rv") and "v" in base[4:] else ()
    return ()


def windows_isa() -> tuple[str, ...]:
    """What the system is willing to say; VNNI and the like are not among it. Nor are FMA and F16C,
    which every processor sold with AVX2 has."""
    kernel32 = getattr(ctypes, "WinDLL", None)
    if kernel32 is None:
        return ()
    present = kernel32("kernel32").IsProcessorFeaturePresent
    found = tuple(name for number, name in _WINDOWS.items() if present(number))
    return (*found, "fma", "f16c") if "avx2" in found else found


def darwin_isa(sysctl: Callable[[str], str | None]) -> tuple[str, ...]:
    """From ``sysctl``; see :func:`sysctl_value`."""
    return tuple(name for key, name in _DARWIN.items() if sysctl(key) == "1")


def sysctl_value(name: str) -> str | None:
    """One value of macOS's ``sysctl -n``, ``None`` when there is none."""
    try:
        done = subprocess.run(
            ["sysctl", "-n", name], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def host_isa() -> tuple[str, ...]:
    """The instruction sets of this machine."""
    system = platform.system()
    if system == "Windows":
        return windows_isa()
    if system == "Darwin":
        return darwin_isa(sysctl_value)
    return linux_isa(Tree(Path("/")))

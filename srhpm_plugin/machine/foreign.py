"""Cores of Windows and macOS, whose systems say by themselves which are fast."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable

from .cores import Core

_RELATION_PROCESSOR_CORE = 0
_ERROR_INSUFFICIENT_BUFFER = 122
_HEADER = struct.Struct("<IIBB20xH")  # relationship, size, flags, efficiency class, group count
_GROUP = struct.Struct("<QH6x")  # affinity mask, group: a 64-bit GROUP_AFFINITY
CPUS_PER_GROUP = 64


def windows_cores(notes: list[str]) -> tuple[Core, ...]:
    """From GetLogicalProcessorInformationEx; empty with a note when it fails."""
    kernel32 = getattr(ctypes, "WinDLL", None)
    if kernel32 is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        notes.append("the cores are unknown: this Python is not a 64-bit one")
        return ()
    call = kernel32("kernel32", use_last_error=True).GetLogicalProcessorInformationEx
    size = ctypes.c_ulong(0)
    call(_RELATION_PROCESSOR_CORE, None, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    if not size.value or not call(_RELATION_PROCESSOR_CORE, buffer, ctypes.byref(size)):
        notes.append("the cores are unknown: GetLogicalProcessorInformationEx failed")
        return ()
    cores = parse_windows_cores(buffer.raw[: size.value])
    if not cores:
        notes.append("the cores are unknown: Windows lists none")
    return cores


def parse_windows_cores(data: bytes) -> tuple[Core, ...]:
    """SYSTEM_LOGICAL_PROCESSOR_INFORMATION_EX records of a 64-bit Windows as cores.

    CPUs are numbered ``64 * group + bit``. The cores of the highest efficiency class are the
    performance cores. Damaged records end the reading.
    """
    found: list[tuple[int, frozenset[int]]] = []
    start = 0
    while start + _HEADER.size <= len(data):
        relation, size, _flags, efficiency, groups = _HEADER.unpack_from(data, start)
        if size < _HEADER.size or start + size > len(data):
            break
        if relation == _RELATION_PROCESSOR_CORE:
            cpus: set[int] = set()
            for index in range(groups):
                at = start + _HEADER.size + index * _GROUP.size
                if at + _GROUP.size > start + size:
                    break
                mask, group = _GROUP.unpack_from(data, at)
                cpus.update(group * CPUS_PER_GROUP + bit for bit in range(64) if mask >> bit & 1)
            if cpus:
                found.append((efficiency, frozenset(cpus)))
        start += size
    fastest = max((efficiency for efficiency, _ in found), default=0)
    return tuple(Core(cpus, efficiency == fastest) for efficiency, cpus in found)


def darwin_cores(sysctl: Callable[[str], str | None]) -> tuple[Core, ...]:
    """From sysctl. macOS numbers no CPUs: the numbers here only count."""
    physical = _count(sysctl("hw.physicalcpu"))
    logical = max(_count(sysctl("hw.logicalcpu")), physical)
    fast = _count(sysctl("hw.perflevel0.physicalcpu")) or physical
    threads = logical // physical if physical else 1
    return tuple(
        Core(frozenset(range(i * threads, (i + 1) * threads)), i < fast) for i in range(physical)
    )


def _count(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 6 else 0

"""Which of our kernels this processor can run: what native/kernels/choose.cpp decides when the
server starts, from the flags the system tells."""

from __future__ import annotations

from collections.abc import Collection

PORTABLE = "portable"

_BASE = frozenset(("avx2", "fma", "f16c"))
# Best first; what each needs beside the base.
_X86 = {
    "avx512vnni": frozenset(("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni")),
    "avxvnni": frozenset(("avx_vnni",)),
    "avx2": frozenset[str](),
}


def usable_kernels(machine: str, isa: Collection[str]) -> tuple[str, ...]:
    """Instruction sets that there are kernels for and that run here, best first; the last is
    ``portable``, generic code that runs everywhere.

    Windows tells nothing of VNNI: there the server may have a better one than is listed.

    Args:
        machine: as ``platform.machine()`` gives it.
        isa: as :mod:`.isa` names instruction sets.
    """
    present = set(isa)
    found: list[str] = []
    if machine.lower() in ("x86_64", "amd64") and present >= _BASE:
        found += [name for name, needs in _X86.items() if present >= needs]
    elif machine.lower() in ("aarch64", "arm64") and "dotprod" in present:
        found.append("neon")
    return (*found, PORTABLE)


def chosen_kernels(machine: str, isa: Collection[str], named: str | None = None) -> str | None:
    """The kernels that a server takes: the best, or those that ``SRHPM_ISA`` names; ``None`` for
    upstream's. ``portable`` is slower than upstream's, so it must be named."""
    usable = usable_kernels(machine, isa)
    if named:
        return named if named in usable else None
    return usable[0] if usable[0] != PORTABLE else None

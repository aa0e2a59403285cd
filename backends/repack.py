"""Which weight types ggml-cpu repacks into a layout whose sums depend on the batch size.

Types that our kernels take never get there: our buffer type comes before the others. Off they
can be switched only together, ours included, by ``--no-repack``.
"""

from __future__ import annotations

from collections.abc import Iterable

from srhpm_plugin.packing import IN_PLACE, PACKED

# x86: the product of four and more tokens is another kernel than that of one, with another order
# of adding (measured bit by bit; Q4_0, IQ4_NL and MXFP4 are repacked too and add alike).
_X86 = frozenset(("Q2_K", "Q4_K"))
# AMX: tiles from two tokens on, vectors for one.
_AMX = frozenset(("F16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"))
# ARM and RISC-V: every type that is repacked there; none of them was measured.
_OTHER = frozenset(("Q1_0", "Q2_K", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4"))


def varying_types(types: Iterable[str], machine: str, isa: tuple[str, ...]) -> tuple[str, ...]:
    """Those of ``types`` (upper-case ggml names) that upstream's kernels need in the file's layout
    to be exact, sorted.

    Args:
        types: the weight types of the model.
        machine: as ``platform.machine()`` gives it.
        isa: as ``srhpm_plugin.machine.isa`` names instruction sets.
    """
    present = {name.upper() for name in types}
    if machine.lower() not in ("x86_64", "amd64", "i686", "x86"):
        return tuple(sorted(present & _OTHER))
    return tuple(sorted(present & (_X86 | _AMX if "amx_int8" in isa else _X86)))


def without_kernels(types: Iterable[str]) -> tuple[str, ...]:
    """Those of ``types`` that our kernels do not take, in order."""
    return tuple(name for name in unpacked(types) if name.upper() not in IN_PLACE)


def unpacked(types: Iterable[str]) -> tuple[str, ...]:
    """Those of ``types`` that our buffer type does not take, in order."""
    return tuple(name for name in types if name.upper() not in PACKED)

"""Which kernels a processor runs."""

from __future__ import annotations

import pytest

from srhpm_plugin.machine.kernels import chosen_kernels, usable_kernels

BASE = ("avx2", "fma", "f16c")
VNNI = ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni")


@pytest.mark.parametrize(
    ("machine", "isa", "usable"),
    [
        ("x86_64", (), ("portable",)),
        ("x86_64", ("avx2", "fma"), ("portable",)),
        ("AMD64", BASE, ("avx2", "portable")),
        ("x86_64", (*BASE, "avx_vnni"), ("avxvnni", "avx2", "portable")),
        ("x86_64", (*BASE, *VNNI), ("avx512vnni", "avx2", "portable")),
        ("x86_64", (*BASE, *VNNI[:-1]), ("avx2", "portable")),
        ("x86_64", (*BASE, "avx_vnni", *VNNI), ("avx512vnni", "avxvnni", "avx2", "portable")),
        ("i686", BASE, ("portable",)),
        ("aarch64", ("neon", "fp16", "dotprod"), ("neon", "portable")),
        ("arm64", ("neon", "dotprod", "i8mm"), ("neon", "portable")),
        ("ARM64", ("neon", "dotprod"), ("neon", "portable")),
        ("aarch64", ("neon", "fp16"), ("portable",)),
        ("x86_64", ("neon", "dotprod"), ("portable",)),
        ("armv7l", ("neon", "dotprod"), ("portable",)),
    ],
)
def test_usable(machine: str, isa: tuple[str, ...], usable: tuple[str, ...]) -> None:
    assert usable_kernels(machine, isa) == usable
    best = usable[0] if len(usable) > 1 else None
    assert chosen_kernels(machine, isa) == best


def test_named() -> None:
    assert chosen_kernels("x86_64", (*BASE, *VNNI), "avx2") == "avx2"
    assert chosen_kernels("x86_64", BASE, "avx512vnni") is None
    assert chosen_kernels("aarch64", (), "portable") == "portable"
    assert chosen_kernels("x86_64", BASE, "") == "avx2"

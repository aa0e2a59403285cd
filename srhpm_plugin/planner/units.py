"""Sizes in words."""

from __future__ import annotations

KIB = 1024
MIB = 1024**2
GIB = 1024**3


def size(n: int) -> str:
    """``n`` bytes as people read them: ``1.24 GiB``, ``92.1 MiB``, ``17 KiB``."""
    if n >= GIB:
        return f"{n / GIB:.2f} GiB"
    if n >= MIB:
        return f"{n / MIB:.1f} MiB"
    return f"{n / KIB:.0f} KiB" if n else "0"


def count(n: int) -> str:
    """A number of weights: ``27.0 B``, ``135 M``."""
    if n >= 1_000_000_000:
        return f"{n / 1e9:.1f} B"
    return f"{n / 1e6:.0f} M" if n >= 1_000_000 else str(n)


def pad(n: int, multiple: int) -> int:
    """``n`` rounded up to a multiple."""
    return -(-n // multiple) * multiple

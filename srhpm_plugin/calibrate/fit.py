"""Figures made of samples: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from .data import WIDTHS, Attention, Passes, Table


def attention(slopes: Table, *, heads: int, heads_kv: int, length: int, layers: int) -> Attention:
    """The two costs of attention from how a pass's time grows with the context.

    Least squares over M of the relative error of ``query * M * heads * length + cell * heads_kv *
    length``, neither cost below zero.

    Args:
        slopes: milliseconds by position of the cache, by M, of all layers.
        heads, heads_kv, length: of the model measured: query and key/value heads, elements.
        layers: that the slopes are a sum of.
    """
    aa = ab = bb = ay = by = 0.0
    for m, slope in slopes.items():
        y = max(slope, 1e-12) * 1e6 / layers
        a, b = m * heads * length / y, heads_kv * length / y
        aa, ab, bb, ay, by = aa + a * a, ab + a * b, bb + b * b, ay + a, by + b
    determinant = aa * bb - ab * ab
    query = (ay * bb - by * ab) / determinant if determinant else ay / aa
    cell = (by * aa - ay * ab) / determinant if determinant else 0.0
    if query < 0:
        query, cell = 0.0, by / bb
    elif cell < 0:
        query, cell = ay / aa, 0.0
    return Attention(query, cell)


def passes(
    shallow: Table, deep: Table, rebuilt: float, *, shallow_layers: int, deep_layers: int
) -> Passes:
    """The cost of a pass and of a layer from two narrow models that differ in layers alone.

    Args:
        shallow, deep: milliseconds of a pass by M.
        rebuilt: milliseconds of a pass of the deep one over one token whose graph is built anew.
        shallow_layers, deep_layers: how many they have.
    """
    layer = {m: max(0.0, (deep[m] - shallow[m]) / (deep_layers - shallow_layers)) for m in WIDTHS}
    fixed = {m: max(0.0, shallow[m] - shallow_layers * layer[m]) for m in WIDTHS}
    return Passes(fixed, layer, max(0.0, rebuilt - deep[1]) / deep_layers)


def at(table: Table, m: float) -> float:
    """The figure for M: a straight line between the widths that were measured, and beyond the last
    as it went there (never falling)."""
    widths = sorted(table)
    if m <= widths[0]:
        return table[widths[0]]
    low, high = widths[-2], widths[-1]
    for left, right in pairwise(widths):
        if m <= right:
            low, high = left, right
            break
    slope = (table[high] - table[low]) / (high - low)
    if m > widths[-1]:
        return table[high] + max(0.0, slope) * (m - high)
    return table[low] + slope * (m - low)


def rising(table: Mapping[int, float]) -> dict[int, float]:
    """A table in which nothing falls as M grows: more tokens never cost less, so what fell was
    noise. The least change that does it: neighbours that fall take their mean."""
    widths = sorted(table)
    blocks: list[list[float]] = []  # sum, count
    for m in widths:
        blocks.append([table[m], 1.0])
        while len(blocks) > 1 and _mean(blocks[-2]) > _mean(blocks[-1]):
            last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + last[0], blocks[-1][1] + last[1]]
    values = [_mean(block) for block in blocks for _ in range(int(block[1]))]
    return dict(zip(widths, values, strict=True))


def _mean(block: Sequence[float]) -> float:
    return block[0] / block[1]

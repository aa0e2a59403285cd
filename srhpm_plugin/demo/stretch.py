"""The arithmetic of widening: where old weights go in a bigger matrix, and what surrounds them.

A llama layer keeps its function in a wider model when the new part of the residual stream stays
zero. So everything that *writes* to the stream (embedding, attention output, FFN down) is zero in
its new rows and for new heads and FFN units; everything that *reads* it may hold anything in its
new columns, as these only ever meet zeros. That part gets random numbers of the old weights'
scale, so that reading and quantizing them costs what real weights cost.

Matrices here are in numpy order, ``(outputs, inputs)``: the reverse of ggml's shape.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import UserError

Half = npt.NDArray[np.float16]
Single = npt.NDArray[np.float32]
Index = npt.NDArray[np.int64]

# Odd, so that a row length never divides it and neighbouring rows get different numbers.
_POOL = 1_000_003


@dataclass(frozen=True)
class Dims:
    """Sizes of a llama model.

    Attributes:
        width: residual stream.
        ffn: FFN units.
        heads, kv_heads: query and key/value heads.
        head: elements per head.
    """

    width: int
    ffn: int
    heads: int
    kv_heads: int
    head: int

    def params(self, layers: int, vocab: int) -> int:
        """Weights of a model with a tied head; norms left out."""
        attention = 2 * self.width * self.head * (self.heads + self.kv_heads)
        return layers * (attention + 3 * self.width * self.ffn) + vocab * self.width


class Filler:
    """Random half-precision numbers, cheap enough for billions: a pool that is walked around."""

    def __init__(self, seed: int) -> None:
        self._pool = np.random.default_rng(seed).standard_normal(_POOL, dtype=np.float32)
        self._at = 0

    def matrix(self, rows: int, cols: int, scale: float) -> Half:
        """``(rows, cols)`` numbers of standard deviation ``scale``."""
        pool = (self._pool * np.float32(scale)).astype(np.float16)
        out = np.empty(rows * cols, dtype=np.float16)
        done = 0
        while done < out.size:
            n = min(_POOL - self._at, out.size - done)
            out[done : done + n] = pool[self._at : self._at + n]
            done += n
            self._at = (self._at + n) % _POOL
        return out.reshape(rows, cols)


def check(old: Dims, new: Dims) -> None:
    """Whether a model of ``old`` sizes fits into one of ``new``.

    Raises:
        UserError: a size shrinks, or the query heads cannot keep their key/value head.
    """
    what = "cannot widen the model"
    for name in ("width", "ffn", "heads", "kv_heads"):
        if getattr(new, name) < getattr(old, name):
            raise UserError(
                what,
                f"{name} would shrink from {getattr(old, name)} to {getattr(new, name)}",
                f"ask for {name} >= {getattr(old, name)}",
            )
    if new.heads % new.kv_heads or new.heads // new.kv_heads < old.heads // old.kv_heads:
        raise UserError(
            what,
            f"{new.heads} heads over {new.kv_heads} key/value heads cannot hold groups of "
            f"{old.heads // old.kv_heads}",
            "ask for heads that are a multiple of kv_heads, with groups at least as big",
        )
    for name in ("width", "ffn"):
        if getattr(new, name) % 32:
            raise UserError(
                what,
                f"{name} {getattr(new, name)} is no multiple of 32, a quantization block",
                "ask for a multiple of 256, so that every quantization can hold it",
            )


def head_positions(old: Dims, new: Dims) -> tuple[Index, Index]:
    """New numbers of the old query heads and of the old key/value heads.

    Query head ``i`` uses key/value head ``i // (heads / kv_heads)``. Old groups go to the first
    new groups, each at the start of its (perhaps bigger) group.
    """
    old_group = old.heads // old.kv_heads
    new_group = new.heads // new.kv_heads
    i = np.arange(old.heads)
    return (i // old_group) * new_group + i % old_group, np.arange(old.kv_heads)


def elements(heads: Index, size: int) -> Index:
    """Rows or columns of the given heads: ``size`` consecutive ones each."""
    rows: Index = (heads[:, None] * size + np.arange(size)).reshape(-1)
    return rows


def reader(old: Single, rows: Index, shape: tuple[int, int], filler: Filler) -> Half:
    """A matrix that reads the residual stream (q, k, v, gate, up).

    Args:
        old: ``(old outputs, old width)``.
        rows: ``old outputs`` new row numbers.
        shape: ``(outputs, width)`` of the result.
    """
    out = filler.matrix(*shape, scale=float(old.std()))
    width = old.shape[1]
    if shape[1] > width:
        # A K-quant stores the scales of eight small blocks relative to the largest of them: a
        # filler louder than its row would cost the row's real weights their precision.
        spread = old.std(axis=1, keepdims=True)
        noise = filler.matrix(len(rows), shape[1] - width, scale=1.0).astype(np.float32)
        out[rows, width:] = (noise * spread).astype(np.float16)
    out[rows, :width] = old.astype(np.float16)
    return out


def writer(old: Single, cols: Index | None, shape: tuple[int, int]) -> Half:
    """A matrix that writes the residual stream (attention output, FFN down) or is looked up in it
    (embedding, head): zero around the old weights.

    Args:
        old: ``(old outputs, old inputs)``.
        cols: ``old inputs`` new column numbers; ``None`` for the first ones.
        shape: ``(outputs, inputs)`` of the result.
    """
    out = np.zeros(shape, dtype=np.float16)
    # Slices where possible: an index array makes a copy per element.
    where = slice(0, old.shape[1]) if cols is None else cols
    out[: old.shape[0], where] = old.astype(np.float16)
    return out


def norm(old: Single, width: int) -> Single:
    """RMS norm weights: the mean of squares over a zero-padded vector falls by ``old / new``, so
    the normalized values grow by the root of it, which the weights take back. The caller scales
    epsilon by ``old / new``."""
    factor = math.sqrt(old.size / width)
    out = np.full(width, float(old.mean()) * factor, dtype=np.float32)
    out[: old.size] = old * np.float32(factor)
    return out

"""Samples of passes over M tokens, taken in pairs, and the figures made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

OnStep = Callable[[int, int, str], None]
"""Called before each piece of work: pieces done, all pieces, what is being done."""


@dataclass(frozen=True)
class Series:
    """One weight type, or one model, and one M. Entry i of ``ms`` and ``stock_ms`` is a pair; so
    are the entries i of the series of one type.

    Attributes:
        type: weight type, or the model's quantization.
        model: its name; ``None`` for a bare matrix product.
        isa: the instruction set of our kernels; ``None`` where it is not known.
        rows, cols: of the matrix; ``None`` for a model.
        m: tokens in a pass.
        ms, stock_ms: milliseconds of each pass.
        nbytes: bytes of weights that our pass reads; ``None`` where that depends on the tokens.
        read_ms: milliseconds of merely reading those bytes; empty where not measured.
        bit_identical: each of the M columns equals the column computed alone; ``None`` where not
            checked.
        stock_bit_identical: the same of stock.
        stock: what stock is: the buffer type that upstream chooses, or a program.
    """

    type: str
    model: str | None
    isa: str | None
    rows: int | None
    cols: int | None
    m: int
    ms: tuple[float, ...]
    stock_ms: tuple[float, ...]
    nbytes: int | None
    read_ms: tuple[float, ...]
    bit_identical: bool | None
    stock_bit_identical: bool | None
    stock: str

    @property
    def title(self) -> str:
        """For tables and charts."""
        return f"{self.model}, {self.type}" if self.model else self.type


def rows(series: Sequence[Series]) -> list[dict[str, Any]]:
    """The ``rows`` of ``bench kernels --json`` (fields are only ever added).

    Ratios are of times, taken within a pair before medians are: ``ratio_to_m1`` to our pass over
    one token, ``ratio_to_stock`` to stock's pass over as many. ``gb_s`` is what our median pass
    reads, in 10^9 bytes per second.
    """
    single = {(s.model, s.type): s for s in series if s.m == 1}
    return [_row(s, single.get((s.model, s.type))) for s in series]


def _row(series: Series, single: Series | None) -> dict[str, Any]:
    middle = median(series.ms)
    return {
        "type": series.type,
        "model": series.model,
        "isa": series.isa,
        "rows": series.rows,
        "cols": series.cols,
        "m": series.m,
        "ms_median": middle,
        "ms_min": min(series.ms),
        "ms_max": max(series.ms),
        "gb_s": None if series.nbytes is None else series.nbytes / middle / 1e6,
        "ratio_to_m1": None if single is None else ratio(series.ms, single.ms),
        "stock_ms_median": median(series.stock_ms),
        "stock_ms_min": min(series.stock_ms),
        "stock_ms_max": max(series.stock_ms),
        "stock_ratio_to_m1": None if single is None else ratio(series.stock_ms, single.stock_ms),
        "ratio_to_stock": ratio(series.ms, series.stock_ms),
        "read_limit_ms": median(series.read_ms) if series.read_ms else None,
        "bytes": series.nbytes,
        "bit_identical": series.bit_identical,
        "stock_bit_identical": series.stock_bit_identical,
        "stock": series.stock,
        "samples_ms": list(series.ms),
        "stock_samples_ms": list(series.stock_ms),
    }


def ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Median over the pairs of ``times`` by ``base``."""
    return median(a / b for a, b in zip(times, base, strict=True))

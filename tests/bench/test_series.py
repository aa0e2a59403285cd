"""Figures made of samples: pairs first, medians after."""

from __future__ import annotations

from dataclasses import replace

import pytest

from srhpm_plugin.bench.series import Series, ratio, rows

ONE = Series(
    type="Q4_K",
    model=None,
    isa="avx2",
    rows=512,
    cols=512,
    m=1,
    ms=(1.0, 2.0, 4.0),
    stock_ms=(2.0, 2.0, 2.0),
    nbytes=4_000_000,
    read_ms=(0.5, 0.7, 0.6),
    bit_identical=True,
    stock_bit_identical=True,
    stock="CPU_REPACK",
)

# The contract of `bench kernels --json`.
FIELDS = {
    *("type", "isa", "rows", "cols", "m", "ms_median", "ms_min", "ms_max", "gb_s", "ratio_to_m1"),
    *("stock_ms_median", "bit_identical"),
}


def test_rows() -> None:
    two = replace(ONE, m=2, ms=(3.0, 2.0, 8.0), stock_ms=(4.0, 8.0, 4.0), bit_identical=False)
    first, second = rows([ONE, two])
    assert set(first) >= FIELDS
    assert (first["ms_median"], first["ms_min"], first["ms_max"]) == (2.0, 1.0, 4.0)
    assert first["gb_s"] == pytest.approx(2.0)
    assert first["read_limit_ms"] == 0.6
    assert (first["ratio_to_m1"], first["stock_ratio_to_m1"]) == (1.0, 1.0)
    assert second["ratio_to_m1"] == 2.0, "of 3, 1 and 2"
    assert second["stock_ratio_to_m1"] == 2.0
    assert second["ratio_to_stock"] == 0.75, "of 0.75, 0.25 and 2"
    assert (first["bit_identical"], second["bit_identical"]) == (True, False)


def test_what_is_not_known_is_null() -> None:
    model = replace(
        ONE, model="a.gguf", m=4, rows=None, cols=None, nbytes=None, read_ms=(), bit_identical=None
    )
    _, row = rows([ONE, model])
    for name in ("rows", "cols", "gb_s", "ratio_to_m1", "read_limit_ms", "bit_identical"):
        assert row[name] is None, f"{name}: another model's single token is no base"
    assert model.title == "a.gguf, Q4_K"


def test_pairs_are_not_cut_short() -> None:
    with pytest.raises(ValueError):
        ratio((1.0, 2.0), (1.0,))

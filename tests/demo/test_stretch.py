"""Where old weights go, and what may and may not surround them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.demo import stretch
from srhpm_plugin.demo.stretch import Dims, Filler
from srhpm_plugin.errors import UserError


@given(
    groups=st.integers(1, 6),
    group=st.integers(1, 5),
    more_groups=st.integers(0, 4),
    bigger=st.integers(0, 4),
)
def test_a_query_head_keeps_its_key_head(
    groups: int, group: int, more_groups: int, bigger: int
) -> None:
    old = Dims(64, 64, groups * group, groups, 8)
    new_groups, new_group = groups + more_groups, group + bigger
    new = Dims(64, 64, new_groups * new_group, new_groups, 8)
    stretch.check(old, new)
    q, kv = stretch.head_positions(old, new)
    assert len(set(q.tolist())) == old.heads
    assert q.max() < new.heads
    for i in range(old.heads):
        assert q[i] // new_group == kv[i // group]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (Dims(32, 64, 4, 2, 8), "width would shrink"),
        (Dims(64, 32, 4, 2, 8), "ffn would shrink"),
        (Dims(64, 64, 2, 2, 8), "heads would shrink"),
        (Dims(64, 64, 4, 1, 8), "kv_heads would shrink"),
        (Dims(64, 64, 5, 2, 8), "cannot hold groups of 2"),
        (Dims(64, 64, 6, 6, 8), "cannot hold groups of 2"),
        (Dims(65, 64, 4, 2, 8), "multiple of 32"),
        (Dims(64, 80, 4, 2, 8), "multiple of 32"),
    ],
)
def test_sizes_that_do_not_fit(new: Dims, message: str) -> None:
    with pytest.raises(UserError, match=message):
        stretch.check(Dims(64, 64, 4, 2, 8), new)


def test_filler_has_the_scale_asked_for_and_is_not_one_number() -> None:
    data = Filler(1).matrix(1500, 1000, scale=0.05).astype(np.float32)
    assert data.std() == pytest.approx(0.05, rel=0.02)
    assert abs(data.mean()) < 0.001
    assert not np.array_equal(data[0], data[1])
    assert np.isfinite(data).all()


def test_filler_in_a_row_is_as_loud_as_the_row() -> None:
    """Blocks of a K-quant hold old and new columns, and share the precision of their scales."""
    rng = np.random.default_rng(3)
    loudness = np.array([[0.001], [0.1], [3.0]], dtype=np.float32)
    old = (rng.standard_normal((3, 64)) * loudness).astype(np.float32)
    out = stretch.reader(old, np.arange(3), (5, 1024), Filler(1)).astype(np.float32)
    assert np.array_equal(out[:3, :64], old.astype(np.float16).astype(np.float32))
    for row in range(3):
        assert out[row, 64:].std() == pytest.approx(old[row].std(), rel=0.2)
    assert (out[3:].std(axis=1) > 0).all()


def test_a_writer_is_zero_around_the_old_weights() -> None:
    old = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    out = stretch.writer(old, np.array([0, 4, 5]), (4, 8))
    assert out.sum() == old.sum()
    assert np.array_equal(out[:2][:, [0, 4, 5]], old)


def test_params_of_the_benchmark_model() -> None:
    assert Dims(2048, 8192, 36, 12, 64).params(30, 49152) == pytest.approx(2.0e9, rel=0.02)

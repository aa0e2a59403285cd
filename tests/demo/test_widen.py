"""The wide model computes the same function, says so in its header, and appears whole."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

from srhpm_plugin.demo.widen import widen
from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import read_model

Array = npt.NDArray[Any]
Maker = Callable[..., Path]
Logits = Callable[[Path, list[int]], Array]

TOKENS = [5, 17, 3, 88, 41, 5, 60, 9]


@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"width": 128},  # norms and epsilon
        {"ffn": 256},
        {"heads": 12, "kv_heads": 4},  # more groups of heads
        {"heads": 10},  # bigger groups: old heads move apart
        {"width": 256, "ffn": 320, "heads": 15, "kv_heads": 3},
    ],
)
def test_same_function(
    small_gguf: Maker, llama_logits: Logits, tmp_path: Path, sizes: dict[str, int]
) -> None:
    src, dst = small_gguf(tmp_path / "small.gguf"), tmp_path / "wide.gguf"
    widen(src, dst, **{"width": 96, "ffn": 160, "heads": 6, "kv_heads": 2, **sizes})
    want, got = llama_logits(src, TOKENS), llama_logits(dst, TOKENS)
    # The logits are of size 1; norms in single precision are the only rounding.
    assert np.abs(got - want).max() < 2e-5 * np.abs(want).max()


def test_the_reference_notices_wrong_heads(
    small_gguf: Maker, llama_logits: Logits, tmp_path: Path
) -> None:
    """The test above could not pass with old query heads left at their old numbers."""
    src, dst = small_gguf(tmp_path / "small.gguf"), tmp_path / "wide.gguf"
    widen(src, dst, width=96, ffn=160, heads=10, kv_heads=2)
    with dst.open("r+b") as file:
        reader = gguf.GGUFReader(dst)
        q = next(t for t in reader.tensors if t.name == "blk.0.attn_q.weight")
        data = q.data.copy()
        data[3 * 16 : 6 * 16] = data[5 * 16 : 8 * 16]
        data[5 * 16 : 8 * 16] = 0
        file.seek(q.data_offset)
        file.write(data.tobytes())
    want, got = llama_logits(src, TOKENS), llama_logits(dst, TOKENS)
    assert np.abs(got - want).max() > 1e-3 * np.abs(want).max()


def test_header(small_gguf: Maker, tmp_path: Path) -> None:
    src, dst = small_gguf(tmp_path / "small.gguf"), tmp_path / "wide.gguf"
    widen(src, dst, width=128, ffn=192, heads=12, kv_heads=4)
    old, new = read_model(src), read_model(dst)
    assert (new.n_embd, new.n_ff, set(new.n_head), set(new.n_head_kv)) == (128, 192, {12}, {4})
    assert (new.key_length, new.value_length) == (16, 16)
    assert new.metadata["llama.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-3 * 96 / 128)
    assert new.tokenizer == old.tokenizer
    assert new.metadata["tokenizer.chat_template"] == old.metadata["tokenizer.chat_template"]
    assert "128" in new.name
    assert set(new.quant_mix) == {"F16", "F32"}


def test_same_arguments_same_bytes(small_gguf: Maker, tmp_path: Path) -> None:
    src = small_gguf(tmp_path / "small.gguf")
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        widen(src, tmp_path / name, width=128, ffn=192, heads=6, kv_heads=2, seed=seed)
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_progress_reaches_the_end(small_gguf: Maker, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    src = small_gguf(tmp_path / "small.gguf")
    widen(
        src,
        tmp_path / "wide.gguf",
        width=128,
        ffn=192,
        heads=6,
        kv_heads=2,
        on_progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == sorted(seen)
    assert (
        seen[-1][0]
        == seen[-1][1]
        == sum(t.n_bytes for t in gguf.GGUFReader(tmp_path / "wide.gguf").tensors)
    )


def test_interrupt_leaves_nothing(small_gguf: Maker, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done * 2 > total:
            raise KeyboardInterrupt

    src = small_gguf(tmp_path / "small.gguf")
    with pytest.raises(KeyboardInterrupt):
        widen(src, tmp_path / "w.gguf", width=128, ffn=192, heads=6, kv_heads=2, on_progress=stop)
    assert [p.name for p in tmp_path.iterdir()] == ["small.gguf"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes to set")
def test_full_disk_is_one_line_and_leaves_nothing(small_gguf: Maker, tmp_path: Path) -> None:
    import resource

    src = small_gguf(tmp_path / "small.gguf")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"cannot write .*wide\.gguf"):
            widen(src, tmp_path / "wide.gguf", width=128, ffn=192, heads=6, kv_heads=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [p.name for p in tmp_path.iterdir()] == ["small.gguf"]


def test_an_existing_file_stays_when_it_fails(small_gguf: Maker, tmp_path: Path) -> None:
    src, dst = small_gguf(tmp_path / "small.gguf"), tmp_path / "wide.gguf"
    dst.write_bytes(b"before")
    with pytest.raises(UserError, match="shrink"):
        widen(src, dst, width=64, ffn=192, heads=6, kv_heads=2)
    assert dst.read_bytes() == b"before"


def test_foreign_models(small_gguf: Maker, tmp_path: Path) -> None:
    src = small_gguf(tmp_path / "qwen.gguf", arch="qwen3")
    with pytest.raises(UserError, match="architecture is not llama"):
        widen(src, tmp_path / "w.gguf", width=128, ffn=192, heads=6, kv_heads=2)


def test_unknown_tensor(small_gguf: Maker, tmp_path: Path) -> None:
    src = small_gguf(tmp_path / "small.gguf")
    data = src.read_bytes()
    src.write_bytes(data.replace(b"blk.0.ffn_gate.weight", b"blk.0.ffn_gato.weight"))
    with pytest.raises(UserError, match=r"ffn_gat[eo]"):
        widen(src, tmp_path / "w.gguf", width=128, ffn=192, heads=6, kv_heads=2)
    assert not (tmp_path / "w.gguf").exists()


def test_header_and_tensors_must_agree(small_gguf: Maker, tmp_path: Path) -> None:
    src = small_gguf(tmp_path / "small.gguf")
    key = b"llama.feed_forward_length" + (4).to_bytes(4, "little")
    data = src.read_bytes()
    assert key in data
    src.write_bytes(
        data.replace(key + (160).to_bytes(4, "little"), key + (128).to_bytes(4, "little"))
    )
    with pytest.raises(UserError, match="the header says"):
        widen(src, tmp_path / "w.gguf", width=128, ffn=192, heads=6, kv_heads=2)


def test_damaged_files(damaged_gguf: tuple[Path, str], tmp_path: Path) -> None:
    path, message = damaged_gguf
    with pytest.raises(UserError) as error:
        widen(path, tmp_path / "w.gguf", width=768, ffn=2048, heads=12, kv_heads=4)
    assert message in error.value.line()
    assert list(tmp_path.iterdir()) == []

"""Split models: read by any part, complete or with a named defect."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import read_header, read_model

Split = Callable[[Path, Path, int], Path]


@pytest.fixture
def parts(tiny: Callable[..., Path], split_gguf: Split, tmp_path: Path) -> list[Path]:
    """A qwen3 in three parts."""
    first = split_gguf(tiny("qwen3").rename(tmp_path / "q.gguf"), tmp_path / "parts", 3)
    return sorted(first.parent.iterdir())


def patch(path: Path, key: bytes, value: bytes) -> None:
    """Overwrite the value of a header field."""
    data = path.read_bytes()
    at = data.index(key) + len(key) + 4
    path.write_bytes(data[:at] + value + data[at + len(value) :])


def test_names_and_order(parts: list[Path]) -> None:
    assert [p.name for p in parts] == [f"q-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    assert read_model(parts[0]).parts == tuple(parts)


def test_any_part_gives_the_whole_model(parts: list[Path], tmp_path: Path) -> None:
    whole = read_model(tmp_path / "q.gguf")
    for part in parts:
        m = read_model(part)
        assert m.path == parts[0]
        for field in ("n_params", "nbytes", "quant_mix", "n_head", "tokenizer", "n_vocab"):
            assert getattr(m, field) == getattr(whole, field)
        here = [replace(t, part=0, offset=0) for t in m.tensors]
        assert here == [replace(t, offset=0) for t in whole.tensors]
        assert {t.part for t in m.tensors} == {0, 1, 2}


def test_data_is_where_the_part_says(smollm2: Path, split_gguf: Split, tmp_path: Path) -> None:
    first = split_gguf(smollm2, tmp_path, 4)
    whole, split = read_model(smollm2), read_model(first)
    for a, b in zip(whole.tensors[::40], split.tensors[::40], strict=True):
        with smollm2.open("rb") as one, split.parts[b.part].open("rb") as other:
            one.seek(a.offset)
            other.seek(b.offset)
            assert one.read(a.nbytes) == other.read(b.nbytes)


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 2]])
def test_missing_parts_are_named(gone: list[int], parts: list[Path]) -> None:
    asked = next(p for i, p in enumerate(parts) if i not in gone)
    for i in gone:
        parts[i].unlink()
    with pytest.raises(UserError) as caught:
        read_model(asked)
    for i in gone:
        assert parts[i].name in caught.value.line()
    assert "missing" in caught.value.line()


def test_claim_of_very_many_parts(parts: list[Path]) -> None:
    many = parts[0].rename(parts[0].with_name("q-00001-of-65535.gguf"))
    patch(many, b"split.count", struct.pack("<H", 65535))
    with pytest.raises(UserError, match=r"q-00002-of-65535\.gguf.* and more is missing"):
        read_model(many)


def test_renamed_part(parts: list[Path]) -> None:
    other = parts[1].rename(parts[1].with_name("model.gguf"))
    with pytest.raises(UserError, match=r"part 2 of 3 .* -00002-of-00003\.gguf"):
        read_model(other)


def test_parts_in_each_others_place(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    with pytest.raises(UserError, match=r"says part 2 of 3, its name part 3 of 3"):
        read_model(parts[0])


def test_parts_of_two_splits(parts: list[Path]) -> None:
    patch(parts[1], b"split.count", struct.pack("<H", 4))
    with pytest.raises(UserError, match="says part 2 of 4"):
        read_model(parts[0])


def test_wrong_number_of_tensors(parts: list[Path]) -> None:
    patch(parts[0], b"split.tensors.count", struct.pack("<i", 5))
    with pytest.raises(UserError, match="5 are stated"):
        read_model(parts[0])


def test_negative_number_of_tensors(parts: list[Path]) -> None:
    patch(parts[0], b"split.tensors.count", struct.pack("<i", -1))
    with pytest.raises(UserError, match=r"split\.tensors\.count is not a count"):
        read_model(parts[0])


def test_same_tensor_in_two_parts(parts: list[Path]) -> None:
    names = [[t.name for t in read_header(p).tensors] for p in parts[:2]]
    name, other = next((a, b) for a in names[0] for b in names[1] if len(a) == len(b))
    data = parts[1].read_bytes().replace(other.encode(), name.encode(), 1)
    parts[1].write_bytes(data)
    with pytest.raises(UserError, match="in an earlier part too"):
        read_model(parts[0])


def test_truncated_part_is_named(parts: list[Path]) -> None:
    data = parts[2].read_bytes()
    parts[2].write_bytes(data[:-100])
    with pytest.raises(UserError, match=r"00003-of-00003\.gguf: the file is truncated"):
        read_model(parts[0])


def test_a_name_alone_makes_no_split(tiny: Callable[..., Path], tmp_path: Path) -> None:
    path = tiny("llama").rename(tmp_path / "x-00001-of-00002.gguf")
    assert read_model(path).parts == (path,)


@pytest.mark.parametrize("count", [0, 100_000])
def test_splitting_needs_a_tensor_per_part(
    count: int, tiny: Callable[..., Path], split_gguf: Split, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="do not make"):
        split_gguf(tiny("llama"), tmp_path / "out", count)


def test_a_part_is_not_split_again(parts: list[Path], split_gguf: Split, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="part of a split model already"):
        split_gguf(parts[0], tmp_path / "again", 2)

"""Headers built to make a reader allocate, loop, recurse or overflow."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import is_gguf, read_header, read_model

U64_MAX = 2**64 - 1
TINY_MEMORY = 4 * 2**20


def refused(path: Path, content: bytes, named: str, memory: int = TINY_MEMORY) -> None:
    """The file is refused with ``named`` in the message, within ``memory`` bytes."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(UserError) as caught:
            read_model(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert named in caught.value.line(), caught.value.line()
    assert peak < memory


@pytest.mark.parametrize("count", [2**17 + 1, 2**31, 2**32, 2**62, 2**63, U64_MAX])
def test_counts(count: int, raw: Any, tmp_path: Path) -> None:
    fields = raw.model_fields()
    refused(tmp_path / "a", raw.file(fields, n_tensors=count), "tensors")
    refused(tmp_path / "b", raw.file(fields, n_fields=count), "header fields")


@pytest.mark.parametrize("kind", range(14))
@pytest.mark.parametrize("count", [2**20, 2**31, 2**61, 2**63, U64_MAX])
def test_array_counts(kind: int, count: int, raw: Any, tmp_path: Path) -> None:
    field = raw.array("x", kind, count, bytes(64))
    named = "unsupported type" if kind in (9, 13) else "x"
    refused(tmp_path / "m", raw.file([*raw.model_fields(), field]), named)


@pytest.mark.parametrize("length", [65, 2**20, 2**20 + 1, 2**31, 2**63, U64_MAX - 7, U64_MAX])
def test_string_lengths(length: int, raw: Any, tmp_path: Path) -> None:
    claim = struct.pack("<Q", length) + b"y" * 64
    key_and_type = raw.text("x") + struct.pack("<I", 8)
    path = tmp_path / "m"
    for field in (key_and_type + claim, claim, raw.array("x", 8, 1, claim)):
        content = raw.file([*raw.model_fields(), field])
        cut = content[: content.index(claim) + len(claim)]  # nothing behind the string
        refused(path, cut, "")
    refused(path, raw.file(raw.model_fields(), [claim]), "")


def test_string_that_ends_just_past_the_file(raw: Any, tmp_path: Path) -> None:
    for over in (1, 2, 8):
        field = raw.text("x") + struct.pack("<IQ", 8, 16 + over) + b"y" * 16
        head = raw.file([*raw.model_fields(), field])
        cut = head[: head.index(b"y" * 16) + 16]
        refused(tmp_path / "m", cut, "truncated")


@pytest.mark.parametrize("depth", [1, 2, 1000, 100_000])
def test_nested_arrays(depth: int, raw: Any, tmp_path: Path) -> None:
    inner = struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 4, 1) + bytes(4)
    field = raw.text("x") + struct.pack("<I", 9) + inner
    refused(tmp_path / "m", raw.file([*raw.model_fields(), field]), "unsupported type 9")


@pytest.mark.parametrize("kind", [13, 255, 2**31, 2**32 - 1])
def test_unknown_field_type(kind: int, raw: Any, tmp_path: Path) -> None:
    field = raw.text("x") + struct.pack("<I", kind) + bytes(8)
    refused(tmp_path / "m", raw.file([*raw.model_fields(), field]), f"unknown type {kind}")


@pytest.mark.parametrize(
    "dims",
    [
        (2**32, 2**32),  # product 2^64 wraps to 0
        (2**32, 2**31, 2),
        (2**33, 2**33, 2, 8),
        (2**63,),
        (U64_MAX,),
        (U64_MAX, U64_MAX, U64_MAX, U64_MAX),
        (0, 2**63),  # an empty dimension must not excuse the other
        (2**62 + 1, 4),  # wraps to 4
    ],
)
def test_dimension_products(dims: tuple[int, ...], raw: Any, tmp_path: Path) -> None:
    content = raw.file(raw.model_fields(), [raw.tensor("t", dims)], data=64)
    refused(tmp_path / "m", content, "absurd shape")


def test_sizes_that_would_wrap_in_bytes(raw: Any, tmp_path: Path) -> None:
    content = raw.file(raw.model_fields(), [raw.tensor("t", (2**62,), kind=28)], data=64)
    refused(tmp_path / "m", content, "truncated")


@pytest.mark.parametrize("n_dims", [5, 2**16, 2**32 - 1])
def test_number_of_dimensions(n_dims: int, raw: Any, tmp_path: Path) -> None:
    entry = raw.text("t") + struct.pack("<I", n_dims) + bytes(64)
    refused(tmp_path / "m", raw.file(raw.model_fields(), [entry]), "dimensions")


@pytest.mark.parametrize("kind", [4, 5, 31, 36, 43, 144, 2**31, 2**32 - 1])
def test_tensor_types(kind: int, raw: Any, tmp_path: Path) -> None:
    content = raw.file(raw.model_fields(), [raw.tensor("t", (32,), kind)], data=256)
    named = "no longer loads" if kind in (4, 5, 31, 36) else f"unknown type {kind}"
    refused(tmp_path / "m", content, named)


def test_rows_that_are_no_whole_blocks(raw: Any, tmp_path: Path) -> None:
    content = raw.file(raw.model_fields(), [raw.tensor("t", (255, 256), 12)], data=2**16)
    refused(tmp_path / "m", content, "not a multiple of Q4_K's 256")


@pytest.mark.parametrize(
    ("offsets", "named"),
    [
        ((0, 0), "overlaps"),
        ((0, 32), "overlaps"),
        ((0, 33), "not aligned"),
        ((0, 96), "hole"),
        ((32, 96), "hole"),
        ((64, 0), "hole"),
        ((0, U64_MAX - 31), "hole"),
        ((0, 2**63), "hole"),
    ],
)
def test_tensor_offsets(offsets: tuple[int, int], named: str, raw: Any, tmp_path: Path) -> None:
    tensors = [raw.tensor(f"t{i}", (16,), 0, at) for i, at in enumerate(offsets)]
    refused(tmp_path / "m", raw.file(raw.model_fields(), tensors, data=4096), named)


def test_data_that_ends_one_byte_past_the_file(raw: Any, tmp_path: Path) -> None:
    tensors = [raw.tensor("token_embd.weight", (8, 8))]
    fields = raw.model_fields()
    path = tmp_path / "m"
    path.write_bytes(raw.file(fields, tensors, data=256))
    assert read_model(path).nbytes == 256
    refused(path, raw.file(fields, tensors, data=255), "truncated")


@pytest.mark.parametrize("alignment", [0, 3, 24, 33, 2**32 - 1, 2**31])
def test_alignments(alignment: int, raw: Any, tmp_path: Path) -> None:
    fields = [*raw.model_fields(), raw.u32("general.alignment", alignment)]
    refused(tmp_path / "m", raw.file(fields, [raw.tensor("t", (8,))], data=64), "alignment")


def test_alignment_of_another_type(raw: Any, tmp_path: Path) -> None:
    fields = [*raw.model_fields(), raw.string("general.alignment", "32")]
    refused(tmp_path / "m", raw.file(fields), "general.alignment is not a uint32")


def test_same_name_twice(raw: Any, tmp_path: Path) -> None:
    fields = raw.model_fields()
    refused(tmp_path / "a", raw.file([*fields, fields[1]]), "llama.block_count is there twice")
    twice = [raw.tensor("t", (8,)), raw.tensor("t", (8,), 0, 32)]
    refused(tmp_path / "b", raw.file(fields, twice, data=64), "tensor t is there twice")


@pytest.mark.parametrize("name", ["", "x" * 64, "x" * 70_000])
def test_names(name: str, raw: Any, tmp_path: Path) -> None:
    content = raw.file(raw.model_fields(), [raw.tensor(name, (8,))], data=64)
    refused(tmp_path / "a", content, "name of")
    if len(name) != 64:
        refused(tmp_path / "b", raw.file([raw.u32(name, 1)]), "name of header field 0")


def test_names_that_are_no_text(raw: Any, tmp_path: Path) -> None:
    refused(tmp_path / "a", raw.file([raw.text(b"\xff\xfe") + bytes(8)]), "not UTF-8")
    entry = raw.text(b"\xff\xfe") + bytes(16)
    refused(tmp_path / "b", raw.file(raw.model_fields(), [entry]), "not UTF-8")


def test_messages_cannot_drive_the_terminal(raw: Any, tmp_path: Path) -> None:
    nasty = "a\x1b[2J\r\nerror: all is well"
    path = tmp_path / "m"
    path.write_bytes(raw.file([raw.text(nasty) + struct.pack("<I", 99) + bytes(8)]))
    with pytest.raises(UserError) as caught:
        read_model(path)
    assert caught.value.line().isprintable()


def test_millions_of_empty_strings(raw: Any, tmp_path: Path) -> None:
    """Every claim is true here, and still nothing grows without limit."""
    path = tmp_path / "m"
    count = 2**20 + 1
    field = raw.array("tokenizer.ggml.tokens", 8, count, bytes(8 * count))
    refused(path, raw.file([field]), "at most 1048576 are read")
    full = raw.array("{}", 8, 2**20, bytes(8 * 2**20)).replace(b"{}", b"%c%c")
    many = [full.replace(b"%c%c", b"k%d" % i, 1) for i in range(3)]
    started = time.monotonic()
    refused(path, raw.file(many), "more than 2097152 strings in all", 32 * 2**20)
    assert time.monotonic() - started < 60


def test_long_strings_are_passed_over(raw: Any, tmp_path: Path) -> None:
    path = tmp_path / "m"
    big = raw.string("tokenizer.huggingface.json", b"z" * (8 * 2**20))
    tensors = [raw.tensor("token_embd.weight", (8, 8))]
    path.write_bytes(raw.file([big, *raw.model_fields()], tensors, data=256))
    tracemalloc.start()
    model = read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "tokenizer.huggingface.json" not in model.metadata
    assert peak < TINY_MEMORY


def test_many_strings_are_not_all_kept(raw: Any, tmp_path: Path) -> None:
    path = tmp_path / "m"
    texts = [raw.string(f"k{i}", b"\xff" * 2**20) for i in range(24)]
    tensors = [raw.tensor("token_embd.weight", (8, 8))]
    path.write_bytes(raw.file([*texts, *raw.model_fields()], tensors, data=256))
    del texts
    # damaged text decodes to two bytes per character
    tracemalloc.start()
    with pytest.raises(UserError, match=r"general\.architecture"):
        read_model(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 * 2**20


def test_header_without_end(raw: Any, tmp_path: Path) -> None:
    """A sparse file of 300 MB whose header claims to fill it."""
    path = tmp_path / "m"
    claim = raw.array("x", 0, 299 * 2**20, b"")
    path.write_bytes(raw.file([claim, *raw.model_fields()]))
    os.truncate(path, 300 * 2**20)
    with pytest.raises(UserError, match="313524224 numbers in x; at most"):
        read_model(path)


def test_special_ids_outside_the_vocabulary_are_ignored(raw: Any, tmp_path: Path) -> None:
    fields = [
        *raw.model_fields(),
        raw.u32("tokenizer.ggml.bos_token_id", 2**32 - 1),
        raw.u32("tokenizer.ggml.eos_token_id", 7),
    ]
    path = tmp_path / "m"
    path.write_bytes(raw.file(fields, [raw.tensor("token_embd.weight", (8, 8))], data=256))
    tokenizer = read_model(path).tokenizer
    assert tokenizer is not None
    assert "bos" not in tokenizer.special
    assert tokenizer.special["eos"] == 7


@pytest.mark.parametrize("key", ["tokenizer.ggml.tokens", "tokenizer.ggml.merges"])
def test_vocabulary_of_the_wrong_kind(key: str, raw: Any, tmp_path: Path) -> None:
    fields = [f for f in raw.model_fields() if key.encode() not in f]
    tensors = [raw.tensor("token_embd.weight", (8, 8))]
    content = raw.file([*fields, raw.u32(key, 5)], tensors, data=256)
    refused(tmp_path / "m", content, f"{key} is not an array of strings")


def test_no_tensors(raw: Any, tmp_path: Path) -> None:
    refused(tmp_path / "m", raw.file(raw.model_fields()), "holds no tensors")


def test_cut_at_every_byte(raw: Any, tmp_path: Path) -> None:
    path = tmp_path / "m"
    tensors = [raw.tensor("token_embd.weight", (8, 8))]
    whole = raw.file(raw.model_fields(), tensors, data=256)
    for n in range(1, len(whole)):
        path.write_bytes(whole[:n])
        with pytest.raises(UserError, match="truncated"):
            read_model(path)
    path.write_bytes(whole)
    read_model(path)


class TestPaths:
    """What is no readable file at all."""

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"no such file; run `srhpm-plugin models`"):
            read_model(tmp_path / "none.gguf")
        assert not is_gguf(tmp_path / "none.gguf")

    def test_directory_names_a_file_in_it(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match="it is a directory"):
            read_model(tmp_path)
        (tmp_path / "b.gguf").write_bytes(b"")
        with pytest.raises(UserError, match=r"b\.gguf"):
            read_model(tmp_path)
        assert not is_gguf(tmp_path)

    def test_impossible_paths(self, tmp_path: Path) -> None:
        for path in (Path("a\0b"), tmp_path / ("x" * 5000)):
            with pytest.raises(UserError, match="cannot read"):
                read_model(path)
            assert not is_gguf(path)

    def test_permission(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Root reads everything, so the refusal is put in place of the system's."""
        path = tmp_path / "m.gguf"
        path.write_bytes(b"GGUF")

        def denied(*args: object, **kwargs: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "open", denied)
        with pytest.raises(UserError, match="permission denied"):
            read_model(path)
        assert not is_gguf(path)

    def test_disk_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "m.gguf"
        path.write_bytes(b"GGUF")

        def broken(*args: object, **kwargs: object) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(Path, "open", broken)
        with pytest.raises(UserError, match="Input/output error"):
            read_model(path)

    def test_device_or_pipe_does_not_block(self, tmp_path: Path) -> None:
        path = tmp_path / "pipe"
        if hasattr(os, "mkfifo"):
            os.mkfifo(path)
        else:
            path = Path("NUL")
        with pytest.raises(UserError):
            read_model(path)
        assert not is_gguf(path)

    def test_name_does_not_matter(self, tiny: Callable[..., Path], tmp_path: Path) -> None:
        path = tiny("llama").rename(tmp_path / "sha256-0123456789abcdef")
        assert is_gguf(path)
        assert read_model(path).name == "sha256-0123456789abcdef"
        assert read_header(path).path == path

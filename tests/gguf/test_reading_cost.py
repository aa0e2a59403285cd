"""A header is read once, in chunks, and the weights behind it are left alone."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import read_header, read_model
from srhpm_plugin.gguf.cursor import CHUNK, MAX_STRING, Cursor

Span = tuple[int, int]


class CountingFile(io.FileIO):
    """Notes what is read."""

    spans: list[Span]

    def read(self, size: int | None = -1, /) -> bytes:
        begin = self.tell()
        data = super().read(-1 if size is None else size) or b""
        self.spans.append((begin, begin + len(data)))
        return data


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Span]]:
    """Byte ranges read through Path.open."""
    spans: list[Span] = []

    def opened(self: Path, *args: Any, **kwargs: Any) -> CountingFile:
        file = CountingFile(self)
        file.spans = spans
        return file

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", opened)
        yield spans


def large_vocabulary(raw: Any, path: Path, tokens: int, merges: int, weights: int) -> None:
    """A model with real-sized vocabulary and ``weights`` bytes of (sparse) data."""
    words = b"".join(raw.text(f"\u0120token{i}") for i in range(tokens))
    pairs = b"".join(raw.text(f"\u0120tok en{i}") for i in range(merges))
    drop = (b"tokenizer.ggml.tokens", b"tokenizer.ggml.merges")
    fields = [f for f in raw.model_fields() if not any(d in f for d in drop)]
    fields += [
        raw.array("tokenizer.ggml.tokens", 8, tokens, words),
        raw.array("tokenizer.ggml.token_type", 5, tokens, bytes(4 * tokens)),
        raw.array("tokenizer.ggml.scores", 6, tokens, bytes(4 * tokens)),
        raw.array("tokenizer.ggml.merges", 8, merges, pairs),
    ]
    head = raw.file(fields, [raw.tensor("token_embd.weight", (8, weights // 32))])
    path.write_bytes(head)
    os.truncate(path, len(head) + weights)


def test_large_vocabulary(raw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.gguf"
    large_vocabulary(raw, path, 152_064, 151_387, 2**30)
    with counted(monkeypatch) as spans:
        started = time.monotonic()
        model = read_model(path)
        seconds = time.monotonic() - started
    assert model.tokenizer is not None
    assert model.tokenizer.n_tokens == 152_064
    header = read_header(path)
    assert max(end for _, end in spans) <= header.data_offset + CHUNK
    assert max(end - begin for begin, end in spans) <= CHUNK
    # number arrays are passed over, nothing else is read twice but the first bytes
    assert sum(end - begin for begin, end in spans) <= header.data_offset + CHUNK + 512
    assert seconds < 10  # a bound against quadratic work, not a measurement


def test_each_part_costs_a_chunk(
    smollm2: Path, split_gguf: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = split_gguf(smollm2, tmp_path, 4)
    headers = [read_header(p) for p in read_model(first).parts]
    with counted(monkeypatch) as spans:
        read_model(first)
    limit = sum(h.data_offset + CHUNK + 512 for h in headers)
    assert sum(end - begin for begin, end in spans) <= limit


@pytest.mark.parametrize("length", [0, 1, CHUNK - 9, CHUNK, CHUNK + 1, 3 * CHUNK, MAX_STRING])
def test_strings_across_chunks(length: int, raw: Any, tmp_path: Path) -> None:
    """Items keep their bytes wherever a chunk ends."""
    items = [bytes([65 + i % 26]) * n for i, n in enumerate((7, length, 0, 5, length, 1))]
    path = tmp_path / "m"
    payload = b"".join(raw.text(i) for i in items)
    path.write_bytes(raw.file([raw.array("a", 8, len(items), payload), raw.u32("b", 77)]))
    header = read_header(path, keep=("a",))
    array = header.kv["a"]
    assert array.items == tuple(items)  # type: ignore[union-attr]
    assert header.kv["b"] == 77
    unkept = read_header(path).kv["a"]
    assert unkept.items is None  # type: ignore[union-attr]
    assert unkept.sha256 == array.sha256  # type: ignore[union-attr]


def test_file_that_shrinks_while_it_is_read() -> None:
    """Another process may cut the file: an error, not an endless loop."""

    class Short(io.RawIOBase):
        left = 100

        def read(self, size: int = -1, /) -> bytes:
            n = min(size, self.left, 30)
            self.left -= n
            return bytes(n)

    cur = Cursor(Short(), 10_000, Path("m"))
    assert cur.take(64) == bytes(64)
    with pytest.raises(UserError, match="truncated"):
        cur.take(64)


def test_tokens_that_differ_give_other_hashes(raw: Any, tmp_path: Path) -> None:
    """Moving a letter between neighbours must not go unseen."""
    seen = set()
    for a, b in (("ab", "c"), ("a", "bc"), ("abc", "")):
        fields = [f for f in raw.model_fields() if b"ggml.tokens" not in f]
        words = raw.text(a) + raw.text(b)
        fields.append(raw.array("tokenizer.ggml.tokens", 8, 2, words))
        path = tmp_path / "m"
        path.write_bytes(raw.file(fields, [raw.tensor("token_embd.weight", (8, 2))], data=64))
        tokenizer = read_model(path).tokenizer
        assert tokenizer is not None
        assert tokenizer.token_spans == (a.encode(), b.encode())
        seen.add(tokenizer.tokens_sha256)
    assert len(seen) == 3

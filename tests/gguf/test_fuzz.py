"""Whatever the bytes are: a ModelInfo or a UserError, in bounded memory and time."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import is_gguf, read_model
from srhpm_plugin.model import ModelInfo

MEMORY = 8 * 2**20
SETTINGS = settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file each example is written to."""
    return tmp_path_factory.mktemp("fuzz") / "model.gguf"


def outcome(path: Path, content: bytes) -> ModelInfo | UserError:
    """Read the bytes as a model; anything but the two results fails the test."""
    path.write_bytes(content)
    tracemalloc.start()
    try:
        result: ModelInfo | UserError = read_model(path)
    except UserError as e:
        result = e
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < MEMORY
    if isinstance(result, UserError):
        assert result.line().isprintable()
        assert result.do
    else:
        sane(result, len(content))
    return result


def sane(m: ModelInfo, size: int) -> None:
    """What every consumer may rely on."""
    assert 0 <= m.n_layer <= 512
    assert len(m.n_head) == len(m.n_head_kv) == m.n_layer
    assert m.tensors
    assert sum(m.quant_mix.values()) == m.nbytes <= size
    assert all(t.offset > 0 and t.offset + t.nbytes <= size for t in m.tensors)
    assert len({t.name for t in m.tensors}) == len(m.tensors)
    assert 0 <= m.n_expert_used <= m.n_expert <= 1024
    assert 0 <= m.n_mtp_layers <= 512
    assert all(0 <= i < m.n_layer for i in m.window_layers)
    assert m.name.isprintable()
    if m.tokenizer:
        assert len(m.tokenizer.token_spans) == m.tokenizer.n_tokens
        assert all(0 <= i < max(m.tokenizer.n_tokens, 2) for i in m.tokenizer.special.values())
    if m.recurrent:
        assert all(0 <= i < m.n_layer for i in m.recurrent.layers)


def hybrid(raw: Any) -> bytes:
    """A small valid qwen35 with experts, sliding window, vocabulary and two tensors."""
    a = "qwen35"
    numbers = {
        "block_count": 4,
        "context_length": 64,
        "embedding_length": 8,
        "feed_forward_length": 16,
        "nextn_predict_layers": 1,
        "attention.head_count": 2,
        "attention.sliding_window": 8,
        "full_attention_interval": 2,
        "expert_count": 4,
        "expert_used_count": 2,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 8,
        "ssm.state_size": 4,
        "ssm.group_count": 1,
    }
    words = b"".join(raw.text(f"t{i}") for i in range(8))
    fields = [
        raw.string("general.architecture", a),
        raw.string("general.name", "Fuzz"),
        raw.u32("general.alignment", 32),
        *(raw.u32(f"{a}.{k}", v) for k, v in numbers.items()),
        raw.array(f"{a}.attention.head_count_kv", 5, 4, struct.pack("<4i", 0, 1, 0, 1)),
        raw.array(f"{a}.attention.sliding_window_pattern", 7, 4, b"\x01\0\x01\0"),
        raw.string("tokenizer.ggml.model", "gpt2"),
        raw.string("tokenizer.ggml.pre", "qwen2"),
        raw.array("tokenizer.ggml.tokens", 8, 8, words),
        raw.array("tokenizer.ggml.merges", 8, 1, raw.text("a b")),
        raw.u32("tokenizer.ggml.bos_token_id", 1),
    ]
    tensors = [
        raw.tensor("token_embd.weight", (8, 8), 0, 0),
        raw.tensor("blk.3.nextn.eh_proj.weight", (32, 4), 8, 256),
    ]
    return bytes(raw.file(fields, tensors, data=256 + 160))


def test_the_seed_is_valid(raw: Any, target: Path) -> None:
    m = outcome(target, hybrid(raw))
    assert isinstance(m, ModelInfo)
    assert (m.n_layer, m.n_mtp_layers, m.window_layers) == (3, 1, (0, 2))


# what a flipped byte rarely makes: the numbers at the edges
_EDGES = st.sampled_from(
    [0, 1, 2, 7, 8, 31, 32, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**61, 2**63 - 1, 2**63]
    + [2**64 - k for k in (1, 8, 32)]
)
_EDIT = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 4095), st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("insert"), st.integers(0, 4095), st.binary(min_size=1, max_size=16)),
    st.tuples(st.just("u64"), st.integers(0, 4095), _EDGES),
    st.tuples(st.just("u32"), st.integers(0, 4095), _EDGES),
    st.tuples(st.just("delete"), st.integers(0, 4095), st.integers(1, 64)),
    st.tuples(st.just("cut"), st.integers(0, 4095), st.just(0)),
    st.tuples(st.just("repeat"), st.integers(0, 4095), st.integers(1, 256)),
)


def edited(content: bytes, edits: list[tuple[str, int, Any]]) -> bytes:
    """Apply random damage."""
    for what, place, value in edits:
        at = place % (len(content) or 1)
        if what == "set":
            content = content[:at] + value + content[at + len(value) :]
        elif what == "insert":
            content = content[:at] + value + content[at:]
        elif what == "u64":
            content = content[:at] + struct.pack("<Q", value) + content[at + 8 :]
        elif what == "u32":
            content = content[:at] + struct.pack("<I", value & 0xFFFFFFFF) + content[at + 4 :]
        elif what == "delete":
            content = content[:at] + content[at + value :]
        elif what == "cut":
            content = content[:at]
        else:
            content = content[: at + value] + content[at:]
    return content


@SETTINGS
@given(edits=st.lists(_EDIT, min_size=1, max_size=6))
def test_damaged_models(edits: list[tuple[str, int, Any]], raw: Any, target: Path) -> None:
    outcome(target, edited(hybrid(raw), edits))


def test_every_byte_set_to_the_edges(raw: Any, target: Path) -> None:
    seed = hybrid(raw)
    accepted = 0
    for at in range(len(seed) - 416):
        for byte in (0x7F, 0xFF):
            changed = seed[:at] + bytes([byte]) + seed[at + 1 :]
            accepted += isinstance(outcome(target, changed), ModelInfo)
    assert accepted  # some bytes, such as those of names, may be anything


_KEYS = st.sampled_from(
    [
        "general.architecture",
        "general.alignment",
        "general.type",
        "llama.block_count",
        "llama.embedding_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
        "llama.feed_forward_length",
        "split.count",
        "split.no",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
        "tokenizer.ggml.model",
        "tokenizer.ggml.bos_token_id",
    ]
) | st.text(max_size=8)
_NUMBER_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def _text(s: bytes) -> bytes:
    return struct.pack("<Q", len(s)) + s


@st.composite
def _payload(draw: st.DrawFn, kind: int) -> bytes:
    if kind == 8:
        word = draw(
            st.sampled_from([b"llama", b"gpt2", b"qwen35", b"clip"]) | st.binary(max_size=9)
        )
        return _text(word)
    size = _NUMBER_SIZES.get(kind, 4)
    return draw(
        st.integers(0, 4).map(lambda n: n.to_bytes(size, "little"))
        | st.binary(min_size=size, max_size=size)
    )


@st.composite
def _field(draw: st.DrawFn) -> bytes:
    key = draw(_KEYS).encode("utf-8", "replace")
    kind = draw(st.sampled_from([*_NUMBER_SIZES, 8, 8, 8, 9, 9, 13]))
    if kind != 9:
        return _text(key) + struct.pack("<I", kind) + draw(_payload(kind))
    inner = draw(st.sampled_from([*_NUMBER_SIZES, 8, 8, 9]))
    items = draw(st.lists(_payload(inner), max_size=5))
    count = draw(st.just(len(items)) | _EDGES)
    return _text(key) + struct.pack("<IIQ", 9, inner, count) + b"".join(items)


@st.composite
def _tensor(draw: st.DrawFn) -> bytes:
    name = draw(
        st.sampled_from(["token_embd.weight", "blk.0.x", "blk.999.x"]) | st.text(max_size=5)
    )
    dims = draw(st.lists(st.sampled_from([0, 1, 32, 256]) | _EDGES, max_size=5))
    kind = draw(st.integers(0, 44))
    offset = draw(st.sampled_from([0, 0, 0, 32, 64, 128]) | _EDGES)
    raw_name = _text(name.encode("utf-8", "replace"))
    return raw_name + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


_MINIMUM = [
    _text(b"general.architecture") + struct.pack("<I", 8) + _text(b"llama"),
    _text(b"llama.block_count") + struct.pack("<II", 4, 1),
    _text(b"llama.embedding_length") + struct.pack("<II", 4, 32),
    _text(b"llama.attention.head_count") + struct.pack("<II", 4, 2),
]


@SETTINGS
@given(
    start=st.sampled_from([[], _MINIMUM, _MINIMUM, _MINIMUM]),
    fields=st.lists(_field(), max_size=6),
    tensors=st.lists(_tensor(), max_size=4),
    data=st.integers(0, 4096),
    version=st.sampled_from([2, 3, 3, 3]),
    wrong=st.tuples(st.sampled_from([0, 0, 0, 1]), st.sampled_from([0, 0, 0, 1])),
)
def test_generated_headers(
    *,
    start: list[bytes],
    fields: list[bytes],
    tensors: list[bytes],
    data: int,
    version: int,
    wrong: tuple[int, int],
    raw: Any,
    target: Path,
) -> None:
    every = start + fields
    content = raw.file(
        every,
        tensors,
        data=data,
        version=version,
        n_fields=len(every) + wrong[0],
        n_tensors=len(tensors) + wrong[1],
    )
    outcome(target, content)


@SETTINGS
@given(content=st.binary(max_size=600), magic=st.sampled_from([b"", b"GGUF", b"GGUF\3\0\0\0"]))
def test_any_bytes(content: bytes, magic: bytes, target: Path) -> None:
    result = outcome(target, magic + content)
    assert isinstance(result, UserError)
    assert is_gguf(target) == (magic + content).startswith(b"GGUF")

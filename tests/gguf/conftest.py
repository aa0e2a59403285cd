"""Builders of small GGUF files: valid ones through gguf-py, arbitrary ones byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

E, FF, H, KV, HD, V, L = 64, 128, 4, 2, 16, 96, 4
"""Width, feed-forward width, heads, key-value heads, head size, vocabulary, layers."""
STATE, GROUPS, DT = 16, 2, 4
INNER = STATE * DT

Shape = tuple[int, ...]
Tensors = dict[str, Shape]


def _block(i: int, parts: Mapping[str, Shape]) -> Tensors:
    return {f"blk.{i}.{name}": shape for name, shape in parts.items()}


_FFN: Tensors = {
    "ffn_gate.weight": (E, FF),
    "ffn_up.weight": (E, FF),
    "ffn_down.weight": (FF, E),
}
_EXPERTS: Tensors = {
    "ffn_gate_inp.weight": (E, 8),
    "ffn_gate_exps.weight": (E, 32, 8),
    "ffn_up_exps.weight": (E, 32, 8),
    "ffn_down_exps.weight": (32, E, 8),
}
_ATTN: Tensors = {
    "attn_norm.weight": (E,),
    "attn_q.weight": (E, H * HD),
    "attn_k.weight": (E, KV * HD),
    "attn_v.weight": (E, KV * HD),
    "attn_output.weight": (H * HD, E),
}
_QK_NORM: Tensors = {"attn_q_norm.weight": (HD,), "attn_k_norm.weight": (HD,)}
_FFN_NORM: Tensors = {"ffn_norm.weight": (E,)}
_CONV = INNER + 2 * GROUPS * STATE
_DELTA: Tensors = {
    "attn_norm.weight": (E,),
    "attn_qkv.weight": (E, 2 * GROUPS * STATE + INNER),
    "attn_gate.weight": (E, INNER),
    "ssm_conv1d.weight": (4, _CONV),
    "ssm_dt.bias": (DT,),
    "ssm_a": (DT,),
    "ssm_beta.weight": (E, DT),
    "ssm_alpha.weight": (E, DT),
    "ssm_norm.weight": (STATE,),
    "ssm_out.weight": (INNER, E),
}
_GATED: Tensors = {**_ATTN, **_QK_NORM, "attn_q.weight": (E, 2 * H * HD)}
_POST: Tensors = {"post_attention_norm.weight": (E,)}
_NEXTN: Tensors = {
    "nextn.eh_proj.weight": (2 * E, E),
    "nextn.enorm.weight": (E,),
    "nextn.hnorm.weight": (E,),
}
_MAMBA2: Tensors = {
    "attn_norm.weight": (E,),
    "ssm_in.weight": (E, INNER + _CONV + DT),
    "ssm_conv1d.weight": (4, _CONV),
    "ssm_conv1d.bias": (_CONV,),
    "ssm_dt.bias": (DT,),
    "ssm_a": (1, DT),
    "ssm_d": (1, DT),
    "ssm_norm.weight": (INNER // GROUPS, GROUPS),
    "ssm_out.weight": (INNER, E),
}
_SHORTCONV: Tensors = {
    "attn_norm.weight": (E,),
    "shortconv.conv.weight": (3, E),
    "shortconv.in_proj.weight": (E, 3 * E),
    "shortconv.out_proj.weight": (E, E),
}
_GEMMA: Tensors = {**_ATTN, **_QK_NORM, **_POST, **_FFN_NORM, **_FFN, "post_ffw_norm.weight": (E,)}

SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": INNER,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": DT,
    "ssm.group_count": GROUPS,
}
MOE = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}
_NO_ATTN = {"attention.head_count": 0, "attention.head_count_kv": None, "feed_forward_length": 0}
_M_ROPE = {"rope.dimension_sections": [4, 4, 0, 0]}

# architecture -> (fields on top of the common ones, tensors of a layer)
_ARCHS: dict[str, tuple[dict[str, Any], Callable[[int], Tensors]]] = {
    "llama": ({}, lambda i: {**_ATTN, **_FFN_NORM, **_FFN}),
    "qwen3": ({}, lambda i: {**_ATTN, **_QK_NORM, **_FFN_NORM, **_FFN}),
    "qwen3moe": (MOE, lambda i: {**_ATTN, **_QK_NORM, **_FFN_NORM, **_EXPERTS}),
    "qwen35": (
        {**SSM, **_M_ROPE},
        lambda i: {**(_GATED if i % 4 == 3 else _DELTA), **_POST, **_FFN},
    ),
    "gemma3": (
        {"block_count": 8, "attention.sliding_window": 256},
        lambda i: _GEMMA,
    ),
    "mamba2": (
        {**SSM, **_NO_ATTN},
        lambda i: _MAMBA2,
    ),
    "lfm2": (
        {"shortconv.l_cache": 3, "attention.head_count_kv": [0, KV, 0, KV]},
        lambda i: {
            **(_SHORTCONV if i % 2 == 0 else {**_ATTN, **_QK_NORM}),
            **_FFN_NORM,
            **_FFN,
        },
    ),
    "falcon-h1": (SSM, lambda i: {**_MAMBA2, **_ATTN, **_FFN, "ffn_norm": (E,)}),
}


def _common() -> dict[str, Any]:
    return {
        "context_length": 4096,
        "embedding_length": E,
        "block_count": L,
        "feed_forward_length": FF,
        "attention.head_count": H,
        "attention.head_count_kv": KV,
        "attention.key_length": HD,
        "attention.value_length": HD,
        "rope.dimension_count": HD,
        "vocab_size": V,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-6,
    }


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_uint32(key, value)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Path]:
    """``tiny(arch, fields={...}, mtp=0, tensors={...}, plain={...})`` writes a small model.

    ``fields`` (of the architecture) and ``plain`` (full names) override the defaults, ``None``
    leaves one out. Known architectures get all tensors, so llama.cpp loads them; others get an
    embedding only. Weights are zero.
    """

    def build(
        arch: str,
        fields: Mapping[str, Any] | None = None,
        *,
        mtp: int = 0,
        tensors: Mapping[str, Shape] | None = None,
        plain: Mapping[str, Any] | None = None,
    ) -> Path:
        extra, layer = _ARCHS.get(arch, ({}, lambda i: {}))
        values = {**_common(), **extra, **(fields or {})}
        stated = values["block_count"]
        trunk = stated if isinstance(stated, int) else 0
        if mtp:
            values |= {"block_count": trunk + mtp, "nextn_predict_layers": mtp}
        shapes: Tensors = {"token_embd.weight": (E, V), "output_norm.weight": (E,)}
        if arch == "lfm2":
            shapes = {"token_embd.weight": (E, V), "token_embd_norm.weight": (E,)}
        for i in range(min(trunk, 64)):
            shapes |= _block(i, layer(i))
        for i in range(trunk, trunk + mtp):
            shapes |= _block(i, {**layer(3), **_NEXTN})
        shapes |= tensors or {}
        path = tmp_path / f"{arch}-{len(list(tmp_path.iterdir()))}.gguf"
        writer = gguf.GGUFWriter(path, arch)
        for name, value in values.items():
            if value is not None:
                _add(writer, f"{arch}.{name}", value)
        words = {"tokenizer.ggml.model": "test", **(plain or {})}
        words.setdefault("tokenizer.ggml.tokens", [f"tok{i}" for i in range(V)])
        for key, value in words.items():
            if value is not None:
                _add(writer, key, value)
        for name, shape in shapes.items():
            writer.add_tensor(name, np.zeros(shape[::-1], dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return build


def text(s: str | bytes) -> bytes:
    """A GGUF string."""
    raw = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(raw)) + raw


class RawGguf:
    """Pieces of a GGUF file, to be joined in any wrong way."""

    text = staticmethod(text)

    @staticmethod
    def u32(key: str, value: int) -> bytes:
        """A field of type uint32."""
        return text(key) + struct.pack("<II", 4, value)

    @staticmethod
    def string(key: str, value: str | bytes) -> bytes:
        """A field of type string."""
        return text(key) + struct.pack("<I", 8) + text(value)

    @staticmethod
    def array(key: str, kind: int, count: int, payload: bytes) -> bytes:
        """A field of type array; ``count`` need not be true."""
        return text(key) + struct.pack("<IIQ", 9, kind, count) + payload

    @staticmethod
    def tensor(name: str, dims: Shape, kind: int = 0, offset: int = 0) -> bytes:
        """An entry of the tensor list."""
        shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        return text(name) + shape + struct.pack("<IQ", kind, offset)

    @staticmethod
    def file(
        fields: list[bytes],
        tensors: list[bytes] | None = None,
        *,
        data: int = 0,
        version: int = 3,
        n_fields: int | None = None,
        n_tensors: int | None = None,
    ) -> bytes:
        """A file; the counts are those of the lists unless given."""
        listed = tensors or []
        head = struct.pack(
            "<4sIQQ",
            b"GGUF",
            version,
            len(listed) if n_tensors is None else n_tensors,
            len(fields) if n_fields is None else n_fields,
        )
        body = head + b"".join(fields) + b"".join(listed)
        return body + bytes(-len(body) % 32) + bytes(data)

    @classmethod
    def model_fields(cls) -> list[bytes]:
        """Fields of a smallest llama that :func:`read_model` takes, with a vocabulary."""
        tokens = b"".join(text(f"t{i}") for i in range(8))
        return [
            cls.string("general.architecture", "llama"),
            cls.u32("llama.block_count", 1),
            cls.u32("llama.embedding_length", 8),
            cls.u32("llama.attention.head_count", 2),
            cls.string("tokenizer.ggml.model", "gpt2"),
            cls.array("tokenizer.ggml.tokens", 8, 8, tokens),
            cls.array("tokenizer.ggml.merges", 8, 1, text("a b")),
        ]


@pytest.fixture(scope="session")
def raw() -> type[RawGguf]:
    """Builder of files gguf-py would not write."""
    return RawGguf

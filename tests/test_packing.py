"""The packed form's sizes, against the header that lays it out."""

from __future__ import annotations

import re

import pytest

from srhpm_plugin.gguf.ggml_types import GGML_TYPES
from srhpm_plugin.model import Tensor
from srhpm_plugin.native.recipe import native_dir
from srhpm_plugin.packing import IN_PLACE, PACKED, Packed, held_bytes, is_factor, packed_bytes

# {GGML_TYPE_Q4_K, 4, 1, Scale::super, true, ...
ROW = re.compile(
    r"\{GGML_TYPE_(\w+),\s*(\d+),\s*(\d+),\s*Scale::(\w+),\s*(true|false),", re.MULTILINE
)


def test_the_table_is_the_headers() -> None:
    text = (native_dir() / "kernels" / "format.h").read_text("utf-8")
    found = {}
    for name, bits, groups, scale, has_min in ROW.findall(text):
        low = has_min == "true"
        scales = (32 if scale == "half" else 16) * int(groups)
        scales *= 2 if low and scale != "nibbles" else 1
        supers = (64 if low else 32) if scale in ("super", "nibbles") else 0
        found[name] = Packed(int(bits) * 64, scales, supers)
    assert found == PACKED
    known = {kind.name for kind in GGML_TYPES.values()}
    assert set(PACKED) <= known
    assert all(kind.block % 32 == 0 for kind in GGML_TYPES.values() if kind.name in PACKED)


def test_what_stays_in_place_is_the_kernels() -> None:
    text = (native_dir() / "kernels" / "kernels.h").read_text("utf-8")
    (types,) = re.findall(r"float_types\[\] = \{(.*?)\}", text)
    assert {name.strip().removeprefix("GGML_TYPE_") for name in types.split(",")} == IN_PLACE


@pytest.mark.parametrize(
    ("kind", "shape", "nbytes"),
    [
        ("Q8_0", (64, 16), 2 * 512 + 64),
        ("Q8_0", (64, 17), 2 * (2 * 512 + 64)),  # rows are padded to panels
        ("Q8_0", (64, 16, 3), 3 * (2 * 512 + 64)),
        ("Q8_0", (96, 16), 3 * 512 + 128),  # 96 bytes of scales are padded
        ("Q4_K", (512, 32), 2 * (16 * 256 + 16 * 32 + 2 * 64)),
        ("MXFP4", (32, 16), 256 + 64),
        ("F16", (64, 16), None),
        ("Q8_0", (64,), None),
    ],
)
def test_sizes(kind: str, shape: tuple[int, ...], nbytes: int | None) -> None:
    assert packed_bytes(Tensor("blk.0.ffn_up.weight", shape, kind, 1)) == nbytes


@pytest.mark.parametrize(
    ("name", "dims", "factor"),
    [
        ("blk.0.ffn_up.weight", 2, True),
        ("output.weight", 2, True),
        ("blk.3.ffn_gate_up_exps.weight", 3, True),
        ("blk.3.ffn_down_chexps.weight", 3, True),
        ("blk.0.attn_k_b.weight", 3, False),
        ("token_embd.weight", 2, False),
        ("per_layer_token_embd.weight", 2, False),
        ("blk.9.nextn.embed_tokens.weight", 2, False),
        ("blk.0.attn_norm.weight", 1, False),
    ],
)
def test_what_is_multiplied_by(name: str, dims: int, factor: bool) -> None:
    tensor = Tensor(name, (64, 16, 2)[:dims], "Q5_1", 5)
    assert is_factor(tensor) == factor
    assert held_bytes(tensor, packed=False) == 5
    assert held_bytes(tensor, packed=True) == (packed_bytes(tensor) if factor else 5)

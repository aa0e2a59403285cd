"""Pictures, and a small image encoder of random numbers for SmolLM2-135M: it shows that pictures
reach the model and count, not what such models can do."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np

SIDE, PATCH, WIDTH = 32, 8, 64  # of the image encoder
IMAGE_TOKENS = (SIDE // PATCH) ** 2


def write_projector(path: Path) -> Path:
    """An encoder of LLaVA's kind: two layers, of which one is used."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    numbers = {
        "image_size": SIDE, "patch_size": PATCH, "embedding_length": WIDTH, "block_count": 2,
        "feed_forward_length": 2 * WIDTH, "attention.head_count": 2, "projection_dim": 576,
    }  # fmt: skip
    for name, number in numbers.items():
        writer.add_uint32(f"clip.vision.{name}", number)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    for name in ("image_mean", "image_std"):
        writer.add_array(f"clip.vision.{name}", [0.5, 0.5, 0.5])
    random = np.random.default_rng(2)

    def add(name: str, *shape: int) -> None:
        values = random.standard_normal(shape) * (shape[-1] ** -0.5)
        writer.add_tensor(name, values.astype(np.float32))

    add("v.patch_embd.weight", WIDTH, 3, PATCH, PATCH)
    add("v.position_embd.weight", IMAGE_TOKENS, WIDTH)
    for layer in range(2):
        for name in ("ln1", "ln2"):
            writer.add_tensor(f"v.blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
            writer.add_tensor(f"v.blk.{layer}.{name}.bias", np.zeros(WIDTH, np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_out"):
            add(f"v.blk.{layer}.{name}.weight", WIDTH, WIDTH)
        add(f"v.blk.{layer}.ffn_up.weight", 2 * WIDTH, WIDTH)
        add(f"v.blk.{layer}.ffn_down.weight", WIDTH, 2 * WIDTH)
    add("mm.0.weight", 576, WIDTH)
    writer.add_tensor("mm.0.bias", np.zeros(576, np.float32))
    add("mm.2.weight", 576, 576)
    writer.add_tensor("mm.2.bias", np.zeros(576, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def png(shade: Callable[[int, int], int]) -> str:
    """A picture in grey, as text."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(SIDE) for value in [shade(x, y)] * 3)
        for y in range(SIDE)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(parts)).decode()

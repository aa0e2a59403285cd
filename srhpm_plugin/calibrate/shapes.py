"""Small models of random weights that the built programs run to be measured: what their weights say
means nothing, how long a pass takes does not depend on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A dense transformer (architecture ``llama``).

    Attributes:
        name: of its file.
        layers, width, heads, heads_kv, length: of attention; ``length`` is elements of a head.
        vocab: tokens.
        ctx: context that it is "trained" for.
    """

    name: str
    layers: int
    width: int = 32
    heads: int = 1
    heads_kv: int = 1
    length: int = 64
    vocab: int = 512
    ctx: int = 4096


SHALLOW = Shape("shallow", 2)
DEEP = Shape("deep", 26)
# Its cache at full context, 50 MB, is more than most processors keep near.
LOOKER = Shape("attention", 24, heads=8, heads_kv=8)
LOOKER_CTX = 1024
TALKER = Shape("talker", 2, vocab=32_768)


def write(shape: Shape, folder: Path) -> Path:
    """The model's file, which is written once."""
    import gguf
    import numpy as np

    path = folder / f"{shape.name}.gguf"
    random = np.random.default_rng(1)
    w = gguf.GGUFWriter(path, "llama")
    w.add_name(f"calibration, {shape.name}")
    w.add_block_count(shape.layers)
    w.add_context_length(shape.ctx)
    w.add_embedding_length(shape.width)
    w.add_feed_forward_length(shape.width)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.heads_kv)
    w.add_key_length(shape.length)
    w.add_value_length(shape.length)
    w.add_rope_dimension_count(shape.length)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(shape.vocab)
    # llama.cpp's own tokenizer for tests: a token for each number, no special ones.
    w.add_tokenizer_model("test")
    w.add_token_list([f"t{i}" for i in range(shape.vocab)])
    w.add_token_scores([0.0] * shape.vocab)
    w.add_token_types([1] * shape.vocab)

    def matrix(name: str, inputs: int, outputs: int) -> None:
        values: Any = random.standard_normal((outputs, inputs), np.float32) * inputs**-0.5
        w.add_tensor(f"{name}.weight", values.astype(np.float16))

    def norm(name: str) -> None:
        w.add_tensor(f"{name}.weight", np.ones(shape.width, np.float32))

    matrix("token_embd", shape.width, shape.vocab)
    norm("output_norm")
    matrix("output", shape.width, shape.vocab)
    for i in range(shape.layers):
        at = f"blk.{i}"
        norm(f"{at}.attn_norm")
        matrix(f"{at}.attn_q", shape.width, shape.heads * shape.length)
        matrix(f"{at}.attn_k", shape.width, shape.heads_kv * shape.length)
        matrix(f"{at}.attn_v", shape.width, shape.heads_kv * shape.length)
        matrix(f"{at}.attn_output", shape.heads * shape.length, shape.width)
        norm(f"{at}.ffn_norm")
        matrix(f"{at}.ffn_gate", shape.width, shape.width)
        matrix(f"{at}.ffn_up", shape.width, shape.width)
        matrix(f"{at}.ffn_down", shape.width, shape.width)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path

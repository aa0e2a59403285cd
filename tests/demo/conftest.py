"""A llama model of a few hundred kilobytes, and what reading and computing with it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
import pytest

Array = npt.NDArray[Any]
Weights = dict[str, Array]

LAYERS, VOCAB = 2, 96


@pytest.fixture(scope="session")
def small_gguf() -> Callable[..., Path]:
    """``small_gguf(path, width=…, ffn=…, heads=…, kv_heads=…, head=…, arch=…)`` writes a random
    model with a vocabulary and a chat template."""

    def make(
        path: Path,
        *,
        width: int = 96,
        ffn: int = 160,
        heads: int = 6,
        kv_heads: int = 2,
        head: int = 16,
        arch: str = "llama",
    ) -> Path:
        rng = np.random.default_rng(7)
        out = gguf.GGUFWriter(path, arch)
        out.add_name("Small")
        out.add_context_length(128)
        out.add_block_count(LAYERS)
        out.add_embedding_length(width)
        out.add_feed_forward_length(ffn)
        out.add_head_count(heads)
        out.add_head_count_kv(kv_heads)
        out.add_key_length(head)
        out.add_value_length(head)
        out.add_layer_norm_rms_eps(1e-3)
        out.add_rope_dimension_count(head)
        out.add_vocab_size(VOCAB)
        out.add_tokenizer_model("gpt2")
        out.add_tokenizer_pre("smollm")
        out.add_token_list([f"t{i}" for i in range(VOCAB)])
        out.add_token_types([1] * VOCAB)
        out.add_token_merges(["t 1", "t 2"])
        out.add_eos_token_id(2)
        out.add_chat_template("{{ messages[0].content }}")

        def add(name: str, *shape: int) -> None:
            data = rng.standard_normal(shape, dtype=np.float32) * 0.2
            if len(shape) == 1:
                data = 1 + data
                out.add_tensor(name, data.astype(np.float32))
            else:
                out.add_tensor(name, data.astype(np.float16))

        add("token_embd.weight", VOCAB, width)
        add("output_norm.weight", width)
        for i in range(LAYERS):
            add(f"blk.{i}.attn_norm.weight", width)
            add(f"blk.{i}.attn_q.weight", heads * head, width)
            add(f"blk.{i}.attn_k.weight", kv_heads * head, width)
            add(f"blk.{i}.attn_v.weight", kv_heads * head, width)
            add(f"blk.{i}.attn_output.weight", width, heads * head)
            add(f"blk.{i}.ffn_norm.weight", width)
            add(f"blk.{i}.ffn_gate.weight", ffn, width)
            add(f"blk.{i}.ffn_up.weight", ffn, width)
            add(f"blk.{i}.ffn_down.weight", width, ffn)
        out.write_header_to_file()
        out.write_kv_data_to_file()
        out.write_tensors_to_file()
        out.close()
        return path

    return make


@pytest.fixture(scope="session")
def llama_logits() -> Callable[[Path, list[int]], Array]:
    """``llama_logits(path, tokens)``: logits after each token, in double precision.

    Written from the definition of the architecture, rotations left out: they act within a head.
    """

    def logits(path: Path, tokens: list[int]) -> Array:
        reader = gguf.GGUFReader(path)
        w: Weights = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }

        def value(key: str) -> Any:
            field = reader.get_field(f"llama.{key}")
            assert field is not None
            return field.contents()

        epsilon = value("attention.layer_norm_rms_epsilon")
        heads, kv_heads = value("attention.head_count"), value("attention.head_count_kv")
        head = value("attention.key_length")

        def norm(x: Array, name: str) -> Array:
            scale = np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon)
            result: Array = x / scale * w[f"{name}.weight"]
            return result

        n = len(tokens)
        x = w["token_embd.weight"][tokens]
        mask = np.triu(np.full((n, n), -np.inf), 1)
        for i in range(value("block_count")):
            p = f"blk.{i}."
            h = norm(x, p + "attn_norm")
            q = (h @ w[p + "attn_q.weight"].T).reshape(n, heads, head)
            k = (h @ w[p + "attn_k.weight"].T).reshape(n, kv_heads, head)
            v = (h @ w[p + "attn_v.weight"].T).reshape(n, kv_heads, head)
            mixed = np.empty((n, heads, head))
            for j in range(heads):
                g = j // (heads // kv_heads)
                s = q[:, j] @ k[:, g].T / np.sqrt(head) + mask
                s = np.exp(s - s.max(axis=1, keepdims=True))
                mixed[:, j] = s / s.sum(axis=1, keepdims=True) @ v[:, g]
            x = x + mixed.reshape(n, -1) @ w[p + "attn_output.weight"].T
            h = norm(x, p + "ffn_norm")
            gate = h @ w[p + "ffn_gate.weight"].T
            up = h @ w[p + "ffn_up.weight"].T
            x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "ffn_down.weight"].T
        result: Array = norm(x, "output_norm") @ w["token_embd.weight"].T
        return result

    return logits

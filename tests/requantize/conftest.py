"""Models of zeros in files of their own, and costs of reading."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from srhpm_plugin.model import ModelInfo
from srhpm_plugin.planner.headers import read_header

KINDS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


@pytest.fixture
def model_of(tmp_path: Path) -> Callable[..., ModelInfo]:
    """``model_of(width, layers=2, tied=False, experts=0)``: F16 matrices of ``width`` squared."""

    def make(width: int = 256, layers: int = 2, tied: bool = False, experts: int = 0) -> ModelInfo:
        path = tmp_path / f"{width}-{layers}-{tied}-{experts}.gguf"
        w = gguf.GGUFWriter(path, "llama")
        w.add_block_count(layers)
        w.add_context_length(1024)
        w.add_embedding_length(width)
        w.add_feed_forward_length(width)
        w.add_head_count(2)
        w.add_layer_norm_rms_eps(1e-5)
        if experts:
            w.add_expert_count(experts)
            w.add_expert_used_count(2)
        w.add_tokenizer_model("gpt2")
        w.add_token_list([str(n) for n in range(64)])
        w.add_tensor("token_embd.weight", np.zeros((64, width), np.float16))
        if not tied:
            w.add_tensor("output.weight", np.zeros((64, width), np.float16))
        w.add_tensor("output_norm.weight", np.zeros(width, np.float32))
        for layer in range(layers):
            w.add_tensor(f"blk.{layer}.attn_norm.weight", np.zeros(width, np.float32))
            for kind in KINDS:
                name, shape = kind, (width, width)
                if experts and kind.startswith("ffn"):
                    name, shape = f"{kind}_exps", (experts, width, width)  # type: ignore[assignment]
                w.add_tensor(f"blk.{layer}.{name}.weight", np.zeros(shape, np.float16))
            if experts:
                router = np.zeros((experts, width), np.float32)
                w.add_tensor(f"blk.{layer}.ffn_gate_inp.weight", router)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        return read_header(path)

    return make

"""Adapters of random numbers: they show that one counts, not what it can do."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

from srhpm_plugin.gguf import read_model


def write_adapter(path: Path, model: Path) -> Path:
    """A LoRA for a model, as llama.cpp's converter writes them."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", 8.0)
    random, rank = np.random.default_rng(1), 4
    for tensor in read_model(model).tensors:
        if tensor.name.endswith(("attn_q.weight", "ffn_down.weight")):
            n_in, n_out = tensor.shape
            for part, shape in (("lora_a", (rank, n_in)), ("lora_b", (n_out, rank))):
                values = random.standard_normal(shape).astype(np.float32) * 0.05
                writer.add_tensor(f"{tensor.name}.{part}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

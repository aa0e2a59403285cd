"""Small model files with the headers that matter to the embedded host; nobody can run them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

TOOLS = "{% if tools %}{{ tools }}{% endif %}{{ messages }}"
THINKING = "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{{ messages }}"


def write_gguf(path: Path, template: str = "", fields: Any = None, kind: str = "") -> Path:
    """A model of one layer; ``fields`` are numbers, ``kind`` is ``general.type``."""
    writer = gguf.GGUFWriter(path, "llama")
    if kind:
        writer.add_type(kind)
    writer.add_block_count(1)
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_name("Given name")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{i}" for i in range(16)])
    writer.add_languages(["en"])
    if template:
        writer.add_chat_template(template)
    for key, value in (fields or {}).items():
        writer.add_uint32(key, value)
    for tensor, shape in (
        ("token_embd.weight", (16, 64)),
        ("blk.0.attn_q.weight", (64, 64)),
        ("output_norm.weight", (64,)),
    ):
        writer.add_tensor(tensor, np.zeros(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path

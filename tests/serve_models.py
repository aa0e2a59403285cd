"""Small model files with the headers that matter to the embedded host; nobody can run them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from srhpm_plugin.gguf import read_header

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


CHATML_TOOLS = """\
{%- if tools %}<|im_start|>system
Tools: {{ tools | tojson }}<|im_end|>
{% for city, weather in [("Paris", "sunny"), ("Rome", "rainy"), ("Oslo", "cold")] -%}
<|im_start|>user
What is the weather in {{ city }}?<|im_end|>
<|im_start|>assistant
<tool_call>
{"name": "get_weather", "arguments": {"city": "{{ city }}"}}
</tool_call><|im_end|>
<|im_start|>tool
{{ weather }}<|im_end|>
<|im_start|>assistant
It is {{ weather }} in {{ city }}.<|im_end|>
{% endfor %}
{%- endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or '' }}
{%- if message.tool_calls %}
{%- for call in message.tool_calls %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{%- endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A template with tools in the form of Hermes and Qwen, and with examples, by which even a small
model learns to call ``get_weather``."""

CHATML_THINKING = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content.split('</think>')[-1] }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is not defined or enable_thinking %}<think>
{% else %}<think>

</think>

{% endif %}{% endif %}"""
"""A template that begins every answer with a thought."""


def variant(source: Path, target: Path, **fields: str | int) -> Path:
    """The same model with more header fields, ``__`` standing for a dot; a field of such a name
    that was there is renamed. Everything else is copied byte by byte."""
    header = read_header(source)
    content = source.read_bytes()
    old, new = content[header.fields_begin : header.fields_end], b""
    for name, value in fields.items():
        key = name.replace("__", ".")
        old = old.replace(key.encode(), key[:-1].encode() + b"_", 1)
        new += _field(key, value)
    # what is added is whole units of alignment, so the tensors stay aligned
    filler = -(len(new) + len(_field("test.filler", ""))) % header.alignment
    new += _field("test.filler", "x" * filler)
    count = struct.pack("<Q", len(header.kv) + len(fields) + 1)
    head = content[: header.fields_begin - len(count)]
    target.write_bytes(b"".join((head, count, old, new, content[header.fields_end :])))
    return target


def _field(key: str, value: str | int) -> bytes:
    name = struct.pack("<Q", len(key)) + key.encode()
    if isinstance(value, int):
        return name + struct.pack("<II", 4, value)
    text = value.encode()
    return name + struct.pack("<IQ", 8, len(text)) + text

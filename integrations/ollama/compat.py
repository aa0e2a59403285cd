"""Models in the format that Ollama's former engine used: only its own server reads them.

Ollama builds llama.cpp with a layer that translates such files in memory while they load
(``llama/compat`` in its source). Models that were made from a GGUF of Hugging Face need no
translation, nor do those that Ollama publishes in llama.cpp's format.
"""

from __future__ import annotations

from collections.abc import Callable

from srhpm_plugin.model import ModelInfo

# Architectures under a name of Ollama's, each with the one that llama.cpp knows.
_RENAMED = {
    "deepseekocr": "deepseek2-ocr",
    "glm4moelite": "deepseek2",
    "glmocr": "glm4",
    "gptoss": "gpt-oss",
    "nemotron_h_omni": "nemotron_h",
    "olmo3": "olmo2",
    "qwen25vl": "qwen2vl",
}

# Projectors and prediction heads inside the model's own file; llama.cpp keeps projectors in a file
# of their own and prediction heads among the blocks.
_INLINE = ("a.", "mm.", "model.vision_tower.", "mtp.", "v.")

_NO_SPLITTER = ("", "default")
_LLAMA3_EOT = 128009


def former_format(model: ModelInfo) -> str | None:
    """Why only Ollama's own server can load the model, in words; ``None`` if llama.cpp can."""
    known = _RENAMED.get(model.arch)
    if known:
        return f"its architecture is called {model.arch} where llama.cpp says {known}"
    inline = next((t.name for t in model.tensors if t.name.startswith(_INLINE)), None)
    if inline:
        return f"it has {inline} and the like in its own file, as only Ollama's server reads them"
    check = _CHECKS.get(model.arch)
    why = check(model) if check else None
    return f"only Ollama's server reads this {model.arch} file: {why}" if why else None


def _keys(*names: str) -> Callable[[ModelInfo], str | None]:
    """A check that the header has one of these fields of the architecture's."""

    def check(model: ModelInfo) -> str | None:
        has = (n for n in names if f"{model.arch}.{n}" in model.metadata)
        key = next(has, None)
        return f"it has the field {key}" if key else None

    return check


def _gemma3(model: ModelInfo) -> str | None:
    if "gemma3.attention.layer_norm_rms_epsilon" not in model.metadata:
        return "it lacks the epsilon of its norms"
    for key in ("tokenizer.ggml.add_padding_token", "tokenizer.ggml.add_unknown_token"):
        if key in model.metadata:
            return f"it has the field {key}"
    if _has(model, "dense.0.weight"):
        return "it has the tensor dense.0.weight"
    return _keys("mm.tokens_per_image", "rope.global.freq_base", "rope.local.freq_base")(model)


def _gemma3n(model: ModelInfo) -> str | None:
    rows = {t.name: t.shape[-1] for t in model.tensors if t.name.endswith("token_embd.weight")}
    if len({*rows.values()}) > 1:
        return "its embeddings have different numbers of rows"
    return None


def _gemma4(model: ModelInfo) -> str | None:
    if model.metadata.get("tokenizer.ggml.model") == "llama":
        return "its tokenizer is called llama"
    return None


def _laguna(model: ModelInfo) -> str | None:
    if _has(model, "blk.0.attn_g.weight"):
        return "it has the tensor blk.0.attn_g.weight"
    return _keys("rope.swa.dimension_count", "rope.swa.freq_base")(model)


def _lfm2(model: ModelInfo) -> str | None:
    if _has(model, "output_norm.weight") and not _has(model, "token_embd_norm.weight"):
        return "its last norm is called output_norm"
    return None


def _llama(model: ModelInfo) -> str | None:
    """Llama 3 without the name of its splitter: llama.cpp would split words otherwise.

    Ollama mends the end-of-text token of such files, too; llama.cpp takes ``<|eot_id|>`` for an
    end by itself.
    """
    tokenizer = model.tokenizer
    if tokenizer is None or tokenizer.pre not in _NO_SPLITTER:
        return None
    spans = tokenizer.token_spans
    if len(spans) > _LLAMA3_EOT and spans[_LLAMA3_EOT].endswith(b"<|eot_id|>"):
        return "it does not say how its tokenizer splits words"
    return None


def _nemotron(model: ModelInfo) -> str | None:
    if any(".ffn_latent_in" in t.name for t in model.tensors):
        return "it has ffn_latent_in tensors"
    return None


def _qwen3next(model: ModelInfo) -> str | None:
    if any(t.name.endswith(".ssm_dt") for t in model.tensors):
        return "it has ssm_dt tensors"
    return None


def _qwen3vl(model: ModelInfo) -> str | None:
    # An array: it is not among the fields kept, but its sections are counted by this one.
    if f"{model.arch}.n_deepstack_layers" not in model.metadata:
        return "it lacks the number of its deepstack layers"
    return None


def _has(model: ModelInfo, tensor: str) -> bool:
    return any(t.name == tensor for t in model.tensors)


_QWEN35 = ("vision.block_count", "image_token_id", "ssm.v_head_reordered", "rope.mrope_interleaved")
_CHECKS: dict[str, Callable[[ModelInfo], str | None]] = {
    "gemma3": _gemma3,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "laguna": _laguna,
    "lfm2": _lfm2,
    "llama": _llama,
    "mistral3": _keys("rope.scaling.beta_fast", "rope.scaling.mscale_all_dim", "rope.scaling_beta"),
    "nemotron_h_moe": _nemotron,
    "qwen35": _keys(*_QWEN35),
    "qwen35moe": _keys(*_QWEN35, "feed_forward_length"),
    "qwen3next": _qwen3next,
    "qwen3vl": _qwen3vl,
    "qwen3vlmoe": _qwen3vl,
}

"""Files in the format of Ollama's former engine are left to its own server; all others are not.

The marks are those by which Ollama's translation (``llama/compat``) knows its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model
from srhpm_plugin.integrations.ollama.compat import former_format
from srhpm_plugin.machine.probe import probe
from srhpm_plugin.model import ModelInfo, Tensor
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner.make import make_plan

EPS = "gemma3.attention.layer_norm_rms_epsilon"
DEEP = "qwen3vl.n_deepstack_layers"
# architecture, tensors besides the usual ones, header fields
FORMER: dict[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "gpt-oss": ("gptoss", (), {}),
    "qwen2.5-vl": ("qwen25vl", (), {}),
    "olmo3": ("olmo3", (), {}),
    "glm4moelite": ("glm4moelite", (), {}),
    "eyes inside": ("mistral3", ("v.patch_conv.weight",), {}),
    "projector inside": ("llama4", ("mm.linear_1.weight",), {}),
    "ears inside": ("gemma4", ("a.conv.weight",), {}),
    "heads inside": ("qwen35", ("mtp.fc.weight",), {}),
    "gemma3 without epsilon": ("gemma3", (), {}),
    "gemma3 with images": ("gemma3", (), {EPS: 1e-6, "gemma3.mm.tokens_per_image": 256}),
    "gemma3 with odd rope": ("gemma3", (), {EPS: 1e-6, "gemma3.rope.local.freq_base": 1e4}),
    "embeddinggemma": ("gemma3", ("dense.0.weight",), {EPS: 1e-6}),
    "gemma4 tokenizer": ("gemma4", (), {"tokenizer.ggml.model": "llama"}),
    "mistral3 rope": ("mistral3", (), {"mistral3.rope.scaling.beta_fast": 32.0}),
    "qwen35": ("qwen35", (), {"qwen35.ssm.v_head_reordered": True}),
    "qwen35moe": ("qwen35moe", (), {"qwen35moe.feed_forward_length": 512}),
    "qwen3next": ("qwen3next", ("blk.0.ssm_dt",), {}),
    "qwen3vl": ("qwen3vl", (), {}),
    "laguna": ("laguna", ("blk.0.attn_g.weight",), {}),
    "nemotron": ("nemotron_h_moe", ("blk.1.ffn_latent_in.weight",), {}),
    "lfm2": ("lfm2", ("output_norm.weight",), {}),
}
OF_LLAMA_CPP: dict[str, tuple[str, tuple[str, ...], Mapping[str, Any]]] = {
    "gpt-oss": ("gpt-oss", (), {}),
    "gemma3": ("gemma3", (), {EPS: 1e-6}),
    "gemma4": ("gemma4", (), {"tokenizer.ggml.model": "gemma4"}),
    "mistral3": ("mistral3", (), {"mistral3.rope.scaling.yarn_beta_fast": 32.0}),
    "qwen35": ("qwen35", ("blk.32.nextn.eh_proj.weight",), {}),
    "qwen35moe": ("qwen35moe", (), {"qwen35moe.expert_feed_forward_length": 512}),
    "qwen3next": ("qwen3next", ("blk.0.ssm_dt.bias",), {}),
    "qwen3vl": ("qwen3vl", (), {DEEP: 3}),
    "lfm2": ("lfm2", ("token_embd_norm.weight", "output_norm.weight"), {}),
    "an unknown one": ("brandnew", (), {}),
}


@pytest.fixture
def model(smollm2: Path) -> Callable[[str, tuple[str, ...], Mapping[str, Any]], ModelInfo]:
    """A header with other names in it."""
    real = read_model(smollm2)
    plain = tuple(t for t in real.tensors if "norm" not in t.name)

    def make(arch: str, tensors: tuple[str, ...], fields: Mapping[str, Any]) -> ModelInfo:
        more = tuple(Tensor(name, (8, 8), "F16", 128) for name in tensors)
        return replace(real, arch=arch, tensors=(*plain, *more), metadata=fields)

    return make


@pytest.mark.parametrize("case", FORMER.values(), ids=FORMER)
def test_former(model: Callable[..., ModelInfo], case: tuple[Any, ...]) -> None:
    assert former_format(model(*case))


@pytest.mark.parametrize("case", OF_LLAMA_CPP.values(), ids=OF_LLAMA_CPP)
def test_not_former(model: Callable[..., ModelInfo], case: tuple[Any, ...]) -> None:
    assert former_format(model(*case)) is None


def test_real_models(smollm2: Path) -> None:
    assert former_format(read_model(smollm2)) is None


def test_a_llama_3_that_does_not_say_how_it_splits_words(smollm2: Path) -> None:
    real = read_model(smollm2)
    assert real.tokenizer is not None
    spans = (b"x",) * 128009 + (b"\x0a\0\0\0\0\0\0\0<|eot_id|>", b"x")
    for pre, former in (("", True), ("default", True), ("llama-bpe", False)):
        tokenizer = replace(real.tokenizer, pre=pre, token_spans=spans)
        assert bool(former_format(replace(real, tokenizer=tokenizer))) == former
    # One of another family may well say nothing.
    assert former_format(replace(real, tokenizer=replace(real.tokenizer, pre=""))) is None


def test_the_plan_of_such_a_file_is_stock(smollm2: Path, model: Callable[..., ModelInfo]) -> None:
    former = model("gemma3", ("v.patch.weight",), {})
    plan = make_plan(
        HostRequest(smollm2), model=former, machine=probe(None), known=(), command=False
    )
    assert plan.kind == "stock"
    assert "v.patch.weight" in plan.reasons[0]

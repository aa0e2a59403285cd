"""ModelInfo of each family the planner knows, and the defaults for what a header omits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import read_model

SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
}


def test_real_model(smollm2: Path) -> None:
    m = read_model(smollm2)
    assert (m.arch, m.n_layer, m.n_embd, m.n_ff, m.n_vocab) == ("llama", 30, 576, 1536, 49152)
    assert m.n_head == (9,) * 30
    assert m.n_head_kv == (3,) * 30
    assert (m.key_length, m.value_length, m.n_ctx_train) == (64, 64, 8192)
    assert m.n_params == 134_515_008
    assert sum(m.quant_mix.values()) == m.nbytes
    assert m.parts == (smollm2,)
    assert m.recurrent is None
    assert m.tokenizer is not None
    assert m.tokenizer.n_tokens == len(m.tokenizer.token_spans) == 49152
    assert m.tokenizer.pre == "smollm"
    assert m.tokenizer.special["bos"] == 1
    assert all(t.layer is None or t.layer < 30 for t in m.tensors)
    assert "output.weight" not in {t.name for t in m.tensors}


def test_omitted_fields_get_llama_cpp_defaults(tiny: Callable[..., Path]) -> None:
    gone = (
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "context_length",
        "feed_forward_length",
        "vocab_size",
    )
    m = read_model(tiny("llama", dict.fromkeys(gone)))
    assert m.n_head_kv == m.n_head == (4,) * 4
    assert (m.key_length, m.value_length) == (16, 16)
    assert (m.n_ctx_train, m.n_ff, m.n_vocab) == (0, 0, 96)
    assert m.name == "llama-0"


def test_heads_per_layer(tiny: Callable[..., Path]) -> None:
    heads = {"attention.head_count": [4, 0, 4, 2], "attention.head_count_kv": [2, 0, 0, 1]}
    m = read_model(tiny("deci", heads))
    assert m.n_head == (4, 0, 0, 2)
    assert m.n_head_kv == (2, 0, 0, 1)


def test_feed_forward_per_layer_gives_the_largest(tiny: Callable[..., Path]) -> None:
    assert read_model(tiny("openelm", {"feed_forward_length": [8, 64, 16, 32]})).n_ff == 64


def test_mixture_of_experts(tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("qwen3moe", {"feed_forward_length": None}))
    assert (m.n_expert, m.n_expert_used, m.n_ff) == (8, 2, 32)


def test_hybrid(tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("qwen35"))
    assert m.recurrent is not None
    assert m.recurrent.layers == (0, 1, 2)
    assert m.recurrent.conv_state == 3 * (64 + 2 * 2 * 16)
    assert m.recurrent.ssm_state == 16 * 64
    assert m.n_head == (0, 0, 0, 4)
    assert m.n_head_kv == (0, 0, 0, 2)


@pytest.mark.parametrize(
    ("fields", "layers"),
    [
        ({**SSM, "block_count": 8}, (0, 1, 2, 4, 5, 6)),
        ({**SSM, "full_attention_interval": 2}, (0, 2)),
        ({**SSM, "attention.recurrent_layers": [True, True, False, False]}, (0, 1)),
    ],
)
def test_which_layers_are_recurrent(
    fields: dict[str, Any], layers: tuple[int, ...], tiny: Callable[..., Path]
) -> None:
    m = read_model(tiny("qwen3next", fields))
    assert m.recurrent is not None
    assert m.recurrent.layers == layers


@pytest.mark.parametrize(
    ("arch", "fields", "expected"),
    [
        ("rwkv7", {"wkv.head_size": 16, "attention.head_count": 0}, ((0, 1, 2, 3), 128, 1024)),
        (
            "kimi-linear",
            {"kda.head_dim": 8, "ssm.conv_kernel": 4, "attention.head_count_kv": [0, 0, 0, 4]},
            ((0, 1, 2), 3 * 3 * 4 * 8, 8 * 8 * 4),
        ),
        ("minimax-01", {"block_count": 8}, ((0, 1, 2, 3, 4, 5, 6), 0, 16 * 16 * 4)),
        (
            "nemotron_h",
            {
                **SSM,
                "attention.head_count": [0, 4, 0, 0],
                "attention.head_count_kv": [0, 2, 0, 0],
                "feed_forward_length": [0, 0, 128, 0],
            },
            ((0, 3), 3 * 128, 1024),
        ),
    ],
)
def test_other_recurrent_families(
    arch: str,
    fields: dict[str, Any],
    expected: tuple[tuple[int, ...], int, int],
    tiny: Callable[..., Path],
) -> None:
    m = read_model(tiny(arch, fields))
    assert m.recurrent is not None
    assert (m.recurrent.layers, m.recurrent.conv_state, m.recurrent.ssm_state) == expected


def test_mtp_layers_are_not_part_of_the_trunk(tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("qwen35", mtp=1))
    assert (m.n_layer, m.n_mtp_layers) == (4, 1)
    assert len(m.n_head) == len(m.n_head_kv) == 4
    assert m.recurrent is not None
    assert m.recurrent.layers == (0, 1, 2)


def test_mtp_layers_without_tensors_do_not_count(tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("qwen3", {"block_count": 5, "nextn_predict_layers": 1}))
    assert (m.n_layer, m.n_mtp_layers) == (4, 0)


@pytest.mark.parametrize(
    ("arch", "fields", "window", "layers"),
    [
        ("gemma3", {}, 256, (0, 1, 2, 3, 4, 6, 7)),
        ("gemma3", {"attention.sliding_window": None}, 0, ()),
        ("gemma3", {"attention.sliding_window_pattern": 4}, 256, (0, 1, 2, 4, 5, 6)),
        ("gemma2", {}, 4096, (0, 2)),
        ("smallthinker", {"attention.sliding_window": 7}, 4096, (1, 2, 3)),
        ("smallthinker", {}, 0, ()),
        ("llama4", {"attention.sliding_window": 0}, 0, ()),
        (
            "mimo2",
            {
                "attention.sliding_window": 128,
                "attention.sliding_window_pattern": [False, True, True, False],
            },
            128,
            (1, 2),
        ),
        # a width in the header that llama.cpp does not apply must not shrink the cache
        ("qwen2", {"attention.sliding_window": 4096}, 0, ()),
        ("llama", {"attention.sliding_window": 4096}, 0, ()),
    ],
)
def test_sliding_window(
    arch: str,
    fields: dict[str, Any],
    window: int,
    layers: tuple[int, ...],
    tiny: Callable[..., Path],
) -> None:
    m = read_model(tiny(arch, fields))
    assert (m.sliding_window, m.window_layers) == (window, layers)


def test_layers_that_share_a_cache_have_none_of_their_own(tiny: Callable[..., Path]) -> None:
    fields = {
        "attention.shared_kv_layers": 1,
        "attention.sliding_window": 128,
        "attention.sliding_window_pattern": [True, True, True, False],
    }
    m = read_model(tiny("gemma4", fields))
    assert m.n_head == (4,) * 4
    assert m.n_head_kv == (2, 2, 2, 0)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"block_count": 0}, "block_count is 0"),
        ({"block_count": None}, "lacks llama.block_count"),
        ({"block_count": 513}, "block_count is 513"),
        ({"block_count": "four"}, "block_count is not a whole number"),
        ({"embedding_length": 0}, "embedding_length is 0"),
        ({"embedding_length": None}, "lacks llama.embedding_length"),
        ({"attention.head_count": 0}, "no attention heads"),
        ({"attention.head_count": None}, "no attention heads"),
        ({"attention.head_count": [4, 4, 4]}, "3 entries for 4 layers"),
        ({"attention.head_count_kv": [2] * 5}, "5 entries for 4 layers"),
        ({"attention.head_count_kv": 5}, "5 key-value heads for 4 heads"),
        ({"attention.head_count": [4, -4, 4, 4]}, "head_count is -4"),
        ({"attention.head_count": [0.5] * 4}, "not a whole number"),
        ({"attention.key_length": 2**31}, "key_length"),
        ({"context_length": 2**32 - 1}, "context_length"),
        ({"nextn_predict_layers": 5}, "nextn_predict_layers is 5"),
        ({"expert_count": 8}, "8 experts and uses 0"),
        ({"expert_used_count": 2}, "0 experts and uses 2"),
        ({"expert_count": 2000}, "expert_count is 2000"),
    ],
)
def test_impossible_hyperparameters(
    fields: dict[str, Any], named: str, tiny: Callable[..., Path]
) -> None:
    with pytest.raises(UserError) as caught:
        read_model(tiny("llama", fields))
    assert named in caught.value.line()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"full_attention_interval": 0}, "full_attention_interval is 0"),
        ({"ssm.state_size": None}, "lacks qwen35.ssm.state_size"),
        ({"ssm.conv_kernel": 0}, "ssm.conv_kernel is 0"),
        ({"ssm.inner_size": 2**32 - 1}, "ssm.inner_size"),
        ({"ssm.inner_size": 2**24, "ssm.state_size": 2**24}, "recurrent state"),
        ({"attention.recurrent_layers": [True]}, "1 entries for 4 layers"),
    ],
)
def test_impossible_recurrent_state(
    fields: dict[str, Any], named: str, tiny: Callable[..., Path]
) -> None:
    with pytest.raises(UserError) as caught:
        read_model(tiny("qwen35", fields))
    assert named in caught.value.line()


@pytest.mark.parametrize(
    ("arch", "plain", "named"),
    [
        ("clip", {}, "projector"),
        ("llama", {"general.type": "adapter"}, "LoRA adapter"),
        ("llama", {"general.type": "mmproj"}, "projector"),
        ("..-etc", {}, "general.architecture is '..-etc'"),
    ],
)
def test_what_is_no_language_model(
    arch: str, plain: dict[str, Any], named: str, tiny: Callable[..., Path]
) -> None:
    with pytest.raises(UserError, match=named):
        read_model(tiny(arch, plain=plain))


def test_a_layer_beyond_those_stated(tiny: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"tensor blk.9.x but states 4 layers"):
        read_model(tiny("llama", tensors={"blk.9.x": (4,)}))


def test_name_is_one_printable_line(tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("llama", plain={"general.name": "Evil\x1b[2J\nname" + "x" * 500}))
    assert m.name.isprintable()
    assert m.name.startswith("Evil")
    assert len(m.name) <= 120


def test_reading_imports_neither_numpy_nor_gguf_py() -> None:
    code = (
        "import sys, srhpm_plugin.gguf, srhpm_plugin.gguf.split;"
        "print([m for m in ('numpy', 'gguf', 'tqdm', 'yaml') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

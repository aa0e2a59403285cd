"""Special ids and flags as llama.cpp puts them in force."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model
from srhpm_plugin.model import Tokenizer

PREFIX = "tokenizer.ggml."


def tokenizer(tiny: Callable[..., Path], **plain: Any) -> Tokenizer:
    """The tokenizer of a llama with these fields."""
    t = read_model(tiny("llama", plain={PREFIX + k: v for k, v in plain.items()})).tokenizer
    assert t is not None
    return t


@pytest.mark.parametrize(
    ("plain", "special"),
    [
        ({"model": "llama"}, {"bos": 1, "eos": 2, "unk": 0, "add_bos": 1, "add_space_prefix": 1}),
        ({"model": "gpt2"}, {"bos": 11, "eos": 11}),
        ({"model": "gpt2", "pre": "llama-bpe"}, {"bos": 11, "eos": 11, "add_bos": 1}),
        ({"model": "gpt2", "pre": "glm4"}, {"eos": 11}),
        ({"model": "gpt2", "pre": "tekken", "add_bos_token": False}, {"bos": 11, "eos": 11}),
        ({"model": "gemma4", "add_bos_token": False}, {"add_bos": 1}),
        ({"model": "t5"}, {"eos": 1, "unk": 2, "pad": 0, "add_eos": 1}),
        ({"model": "rwkv"}, {}),
        (
            {"model": "llama", "eos_token_id": 5, "add_eos_token": True, "eot_token_id": 9},
            {
                "bos": 1,
                "eos": 5,
                "eot": 9,
                "unk": 0,
                "add_bos": 1,
                "add_eos": 1,
                "add_space_prefix": 1,
            },
        ),
        (
            {"model": "rwkv", "prefix_token_id": 3, "fim_mid_token_id": 4},
            {"fim_pre": 3, "fim_mid": 4},
        ),
    ],
)
def test_what_is_in_force(
    plain: dict[str, Any], special: dict[str, int], tiny: Callable[..., Path]
) -> None:
    off = dict.fromkeys(("add_bos", "add_eos", "add_sep", "add_space_prefix"), 0)
    assert tokenizer(tiny, **plain).special == {**off, **special}


def test_default_ids_outside_a_small_vocabulary(tiny: Callable[..., Path]) -> None:
    few = tokenizer(tiny, model="gpt2", tokens=["a", "b"])
    assert "bos" not in few.special


def test_merges(tiny: Callable[..., Path]) -> None:
    none = tokenizer(tiny, model="gpt2")
    some = tokenizer(tiny, model="gpt2", merges=["a b", "b c"])
    turned = tokenizer(tiny, model="gpt2", merges=["b c", "a b"])
    assert none.merges_sha256 == ""
    assert len({none.merges_sha256, some.merges_sha256, turned.merges_sha256}) == 3


def test_gemma4_names_its_pre_tokenizer(tiny: Callable[..., Path]) -> None:
    assert tokenizer(tiny, model="gemma4", pre="default").pre == "gemma4"


@pytest.mark.parametrize("model", ["none", "no_vocab"])
def test_no_vocabulary(model: str, tiny: Callable[..., Path]) -> None:
    m = read_model(tiny("llama", plain={PREFIX + "model": model}))
    assert m.tokenizer is None
    assert m.n_vocab == 96


def test_embedding_gives_the_vocabulary_size(tiny: Callable[..., Path]) -> None:
    """A drafter without an embedding of its own falls back on the header."""
    m = read_model(tiny("llama", {"vocab_size": 5}))
    assert m.n_vocab == 96

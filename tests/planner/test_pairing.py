"""The rule by which the server takes a drafter, and what we ask beyond it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srhpm_plugin.planner.pairing import (
    FIRST_TOKEN_COMPARED,
    MAX_SIZE_DIFFERENCE,
    tokenizer_difference,
    upstream_difference,
)

WORDS = [f"word{i}" for i in range(300)]


def test_equal(models: SimpleNamespace) -> None:
    a, b = models.tokens_of(WORDS), models.tokens_of(WORDS)
    assert upstream_difference(a, b) is None
    assert tokenizer_difference(a, b) is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"model": "llama"}, "of type 'llama', the target's of type 'gpt2'"),
        ({"add_bos": 1}, "it adds a BOS token"),
        ({"add_eos": 1}, "it adds a EOS token"),
    ],
)
def test_upstream_refuses(change: dict[str, Any], why: str, models: SimpleNamespace) -> None:
    found = upstream_difference(models.tokens_of(WORDS), models.tokens_of(WORDS, **change))
    assert found is not None
    assert why in found


def test_an_end_token_matters_only_where_it_is_added(models: SimpleNamespace) -> None:
    assert upstream_difference(models.tokens_of(WORDS), models.tokens_of(WORDS, bos=7)) is None
    found = upstream_difference(
        models.tokens_of(WORDS, add_bos=1), models.tokens_of(WORDS, add_bos=1, bos=7)
    )
    assert found == "its BOS token is 7, the target's 1"


def test_gemma_4_is_a_byte_pair_vocabulary(models: SimpleNamespace) -> None:
    gemma = models.tokens_of(WORDS, model="gemma4")
    assert upstream_difference(models.tokens_of(WORDS), gemma) is None


@pytest.mark.parametrize("more", [0, 1, MAX_SIZE_DIFFERENCE, MAX_SIZE_DIFFERENCE + 1])
def test_padding(more: int, models: SimpleNamespace) -> None:
    short = models.tokens_of(WORDS)
    long = models.tokens_of([*WORDS, *(f"[PAD{i}]" for i in range(more))])
    for a, b in ((short, long), (long, short)):
        found = upstream_difference(a, b)
        assert (found is None) == (more <= MAX_SIZE_DIFFERENCE)


@given(at=st.integers(0, len(WORDS) - 1))
def test_one_token_differs(at: int, models: SimpleNamespace) -> None:
    # two sizes of one family differing at one token (lmstudio#481)
    words = [*WORDS]
    words[at] = "\x1b[31m other"
    found = upstream_difference(models.tokens_of(WORDS), models.tokens_of(words))
    if at < FIRST_TOKEN_COMPARED:
        assert found is None
    else:
        assert found == f"token {at} is '\\x1b[31m other', the target's is 'word{at}'"


@pytest.mark.parametrize(
    ("model", "theirs", "shown"),
    [
        ("gpt2", "Ġthe", "' the'"),
        ("gpt2", "Ċ", "'\\n'"),
        ("gpt2", "ĠÃ¼ber", "' über'"),
        ("gpt2", "ä¸", "b'\\xe4\\xb8'"),  # two of a character's three bytes
        ("gpt2", "<|im_end|>", "'<|im_end|>'"),
        ("gpt2", "<模型>", "'<模型>'"),  # an added token, written plainly
        ("gpt2", "Ġ" * 60, repr(" " * 40)),
        ("llama", "▁the", "' the'"),
        ("gemma4", "▁▁", "'  '"),
        ("llama", "Ġ", "'Ġ'"),
        ("rwkv", "▁a", "'▁a'"),
    ],
)
def test_tokens_as_people_read_them(
    model: str, theirs: str, shown: str, models: SimpleNamespace
) -> None:
    words = [*WORDS]
    words[9] = theirs
    target, drafter = (models.tokens_of(w, model=model) for w in (WORDS, words))
    found = upstream_difference(target, drafter)
    assert found == f"token 9 is {shown}, the target's is 'word9'"


@pytest.mark.parametrize(
    ("ours", "theirs"), [(" a", "Ġa"), ("Ġ" * 50, "Ġ" * 60), ("x" * 41, "x" * 40)]
)
def test_tokens_that_read_alike_are_told_apart(
    ours: str, theirs: str, models: SimpleNamespace
) -> None:
    pair = [models.tokens_of([*WORDS[:9], word, *WORDS[10:]]) for word in (ours, theirs)]
    found = upstream_difference(*pair)
    assert found is not None
    its, targets = found.removeprefix("token 9 is ").split(", the target's is ")
    assert its != targets
    assert its.startswith("b'")


def test_unknown_tokens_never_pass(models: SimpleNamespace) -> None:
    bare = replace(models.tokens_of([*WORDS, "more"]), token_spans=())
    assert upstream_difference(models.tokens_of(WORDS), bare) == (
        "its tokens differ from the target's"
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"pre": "llama-bpe"}, "pre-tokenizer is 'llama-bpe'"),
        ({"eos": 9}, "its EOS token is 9, the target's 2"),
        ({"eot": 9}, None),  # the target has none: nothing to contradict
        ({"pad": 9}, None),
    ],
)
def test_what_we_ask_beyond(
    change: dict[str, Any], why: str | None, models: SimpleNamespace
) -> None:
    a, b = models.tokens_of(WORDS), models.tokens_of(WORDS, **change)
    assert upstream_difference(a, b) is None
    found = tokenizer_difference(a, b)
    assert found is None if why is None else found is not None and why in found


def test_merges(models: SimpleNamespace) -> None:
    a = models.tokens_of(WORDS)
    assert tokenizer_difference(a, replace(a, merges_sha256="others")) is not None

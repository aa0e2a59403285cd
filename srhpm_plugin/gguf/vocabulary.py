"""The tokenizer of a model: hashes and the special ids that are in force in llama.cpp."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ..errors import UserError
from ..model import Tokenizer
from .fields import REBUILD
from .values import StringArray, Value

TOKENS: Final = "tokenizer.ggml.tokens"

# name in Tokenizer.special -> header field; the later field wins, as in llama.cpp
_IDS: Final = (
    ("bos", "bos_token_id"),
    ("eos", "eos_token_id"),
    ("eot", "eot_token_id"),
    ("eom", "eom_token_id"),
    ("unk", "unknown_token_id"),
    ("sep", "seperator_token_id"),  # spelled so in the format
    ("pad", "padding_token_id"),
    ("cls", "cls_token_id"),
    ("mask", "mask_token_id"),
    ("fim_pre", "fim_pre_token_id"),
    ("fim_suf", "fim_suf_token_id"),
    ("fim_mid", "fim_mid_token_id"),
    ("fim_pad", "fim_pad_token_id"),
    ("fim_rep", "fim_rep_token_id"),
    ("fim_sep", "fim_sep_token_id"),
    ("fim_pre", "prefix_token_id"),
    ("fim_suf", "suffix_token_id"),
    ("fim_mid", "middle_token_id"),
)

_FLAGS: Final = (
    ("add_bos", "add_bos_token"),
    ("add_eos", "add_eos_token"),
    ("add_sep", "add_sep_token"),
    ("add_space_prefix", "add_space_prefix"),
)

_DEFAULT_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "gpt2": {"bos": 11, "eos": 11},
    "hybriddna": {"bos": 11, "eos": 11},
    "whitespace": {"bos": 11, "eos": 11},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "plamo2": {"bos": 1, "eos": 2, "unk": 0, "pad": 3},
}

_NO_BOS_PRE: Final = frozenset({"chatglm-bpe", "glm4", "glm5"})

_ADD_BOS_PRE: Final = frozenset(
    {
        "chameleon",
        "falcon-h1",
        "falcon3",
        "jina-v5-nano",
        "lfm2",
        "llama-bpe",
        "llama-v3",
        "llama3",
        "midm-2.0",
        "pixtral",
        "tekken",
    }
)

_ADD_SEP_PRE: Final = frozenset({"jina-v1-en", "jina-v2-code", "roberta-bpe"})

# These add BOS even when the header says not to: their converters wrote the flag wrongly.
_ALWAYS_BOS_PRE: Final = frozenset({"gemma4", "granite-embed-multi-311m"})

_NONE: Final = hashlib.sha256().hexdigest()


def read_tokenizer(path: Path, kv: Mapping[str, Value]) -> Tokenizer | None:
    """The tokenizer, or ``None`` for a model without a vocabulary.

    Raises:
        UserError: the vocabulary's fields are of the wrong kind.
    """
    model = _text(path, kv, "tokenizer.ggml.model")
    tokens = kv.get(TOKENS)
    if tokens is None or model in ("no_vocab", "none"):
        return None
    merges = kv.get("tokenizer.ggml.merges")
    for name, value in ((TOKENS, tokens), ("tokenizer.ggml.merges", merges)):
        if value is not None and not isinstance(value, StringArray):
            raise UserError(f"cannot read {path}", f"{name} is not an array of strings", REBUILD)
    assert isinstance(tokens, StringArray)
    if not tokens.count:
        return None
    pre = "gemma4" if model == "gemma4" else _text(path, kv, "tokenizer.ggml.pre")
    has_merges = isinstance(merges, StringArray) and merges.sha256 != _NONE
    return Tokenizer(
        model=model,
        pre=pre,
        n_tokens=tokens.count,
        tokens_sha256=tokens.sha256,
        merges_sha256=merges.sha256 if has_merges and isinstance(merges, StringArray) else "",
        special={**_ids(kv, model, pre, tokens.count), **_flags(kv, model, pre)},
        token_spans=tokens.items or (),
    )


def _text(path: Path, kv: Mapping[str, Value], key: str) -> str:
    value = kv.get(key, "")
    if not isinstance(value, str):
        raise UserError(f"cannot read {path}", f"{key} is not a string", REBUILD)
    return value


def _ids(kv: Mapping[str, Value], model: str, pre: str, n_tokens: int) -> dict[str, int]:
    """Ids in force; one outside the vocabulary is ignored, as llama.cpp does."""
    ids = dict(_DEFAULT_IDS.get(model, {}))
    if pre in _NO_BOS_PRE:
        ids.pop("bos", None)
    ids = {name: token for name, token in ids.items() if token < n_tokens}
    for name, key in _IDS:
        value = kv.get(f"tokenizer.ggml.{key}")
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < n_tokens:
            ids[name] = value
    return ids


def _flags(kv: Mapping[str, Value], model: str, pre: str) -> dict[str, int]:
    bpe = model in ("gpt2", "gemma4", "hybriddna", "whitespace")
    flags = {
        "add_bos": model in ("llama", "bert") or (bpe and pre in _ADD_BOS_PRE),
        "add_eos": model == "t5",
        "add_sep": model == "bert" or (bpe and pre in _ADD_SEP_PRE),
        "add_space_prefix": model == "llama",
    }
    for name, key in _FLAGS:
        value = kv.get(f"tokenizer.ggml.{key}")
        if isinstance(value, bool):
            flags[name] = value
    if bpe and pre in _ALWAYS_BOS_PRE:
        flags["add_bos"] = True
    return {name: int(value) for name, value in flags.items()}

"""Whether a drafter's token ids mean the same to the target: pure comparisons of tokenizers."""

from __future__ import annotations

import itertools
import operator

from ..model import Tokenizer
from .tokens import readable

# llama.cpp's rule (common/speculative.cpp): vocabularies may differ in size by padding, and the
# first ids, where converters put their unknown and padding tokens, are not compared.
MAX_SIZE_DIFFERENCE = 128
FIRST_TOKEN_COMPARED = 5

# tokenizer.ggml.model -> kind of vocabulary in llama.cpp, where it is not one of its own.
_SAME_KIND = {"gemma4": "gpt2", "hybriddna": "gpt2", "whitespace": "gpt2"}

# Special ids that a model may produce or stop at. Padding, unknown and masks never come up.
_MEANT = ("bos", "eos", "eot", "eom")

_SHOWN = 40  # bytes of a token


def upstream_difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    """Why the server would refuse the pair, or ``None``."""
    kinds = [_SAME_KIND.get(t.model, t.model) for t in (target, drafter)]
    if kinds[0] != kinds[1]:
        return f"its tokenizer is of type {drafter.model!r}, the target's of type {target.model!r}"
    for end in ("bos", "eos"):
        adds = [t.special.get(f"add_{end}", 0) for t in (target, drafter)]
        ids = [t.special.get(end) for t in (target, drafter)]
        if adds[0] != adds[1]:
            word = "adds" if adds[1] else "does not add"
            return f"it {word} a {end.upper()} token, the target does the opposite"
        if adds[0] and ids[0] != ids[1]:
            return f"its {end.upper()} token is {_id(ids[1])}, the target's {_id(ids[0])}"
    difference = abs(target.n_tokens - drafter.n_tokens)
    if difference > MAX_SIZE_DIFFERENCE:
        return (
            f"it has {drafter.n_tokens} tokens, the target {target.n_tokens}: "
            f"more than {MAX_SIZE_DIFFERENCE} apart"
        )
    return _token_difference(target, drafter)


def tokenizer_difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    """Why the two do not split text alike although the server would take the pair, or ``None``.

    Such a drafter runs, and proposes what the target rarely says.
    """
    if target.pre != drafter.pre:
        return f"its pre-tokenizer is {drafter.pre!r}, the target's {target.pre!r}"
    if target.merges_sha256 != drafter.merges_sha256:
        return "its merges differ from the target's"
    for name in _MEANT:
        ids = target.special.get(name), drafter.special.get(name)
        if None not in ids and ids[0] != ids[1]:
            return f"its {name.upper()} token is {_id(ids[1])}, the target's {_id(ids[0])}"
    return None


def _id(token: int | None) -> str:
    return "not set" if token is None else str(token)


def _token_difference(target: Tokenizer, drafter: Tokenizer) -> str | None:
    if target.tokens_sha256 == drafter.tokens_sha256 and target.n_tokens == drafter.n_tokens:
        return None
    ours, theirs = target.token_spans, drafter.token_spans
    if not ours or not theirs:
        return "its tokens differ from the target's"
    for i in range(FIRST_TOKEN_COMPARED, min(len(ours), len(theirs))):
        if ours[i] != theirs[i]:
            its, targets = _texts(theirs[i], drafter.model, ours[i], target.model)
            return f"token {i} is {its}, the target's is {targets}"
    return None


def _texts(its: bytes, its_model: str, targets: bytes, targets_model: str) -> tuple[str, str]:
    """Both tokens for a message: as people read them, or as the files have them where people would
    not see the difference."""
    words = readable(its, its_model), readable(targets, targets_model)
    if words[0] != words[1]:
        return words
    same = sum(1 for _ in itertools.takewhile(bool, map(operator.eq, its, targets)))
    end = max(same + 1, _SHOWN)
    return repr(its[:end]), repr(targets[:end])

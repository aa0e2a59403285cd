"""The drafter: the built-in step.

MTP heads inside the model come first, then the cheapest known model with the same tokenizer, then
n-grams. Every candidate that is passed over gets a line saying why.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from ..files import expand, not_a_file
from ..model import ModelInfo
from ..plan import Draft, DraftChoice, HostRequest
from .headers import read_header
from .hosted import label, title
from .kind import DRAFT_ONLY, unsupported, wanted_ctx
from .pairing import tokenizer_difference, upstream_difference
from .units import size
from .weights import bytes_per_token

# Tokens proposed in every pass, and the most while the drafter is sure. 1 + 7 tokens are the
# widest pass whose products can be made equal to single ones on the CPU, bit for bit.
N_MIN = 3
N_MAX = 7
# llama.cpp's own value until it became 0, with which acceptance collapses (llama.cpp#25908).
P_MIN = 0.75

# A drafter that reads more than this part of what the target reads per token costs about as much
# as the passes it saves, even when three of four of its tokens are accepted.
LARGEST_SHARE = 0.25

_NGRAM_WHY = (
    "n-grams propose what followed the same words earlier in the conversation, "
    f"up to {N_MAX} tokens, and nothing where the words are new"
)


def model_draft(path: Path) -> Draft:
    """A drafter that is a model of its own."""
    return Draft("draft-simple", path, N_MIN, N_MAX, P_MIN)


def ngram_draft() -> Draft:
    """n-grams of the conversation: no memory, no model, no least number of tokens."""
    return Draft("ngram", None, 0, N_MAX, 0.0)


def choose_draft(
    request: HostRequest, model: ModelInfo, known: Sequence[Path], packed: bool = False
) -> DraftChoice:
    """The drafter that ``request.draft`` names, or the best one known for ``auto``.

    Args:
        packed: weights are read as our kernels hold them.

    Raises:
        UserError: a drafter named by path is missing, unreadable or cannot pair.
    """
    if request.draft == "none":
        return DraftChoice(None, off_reason="asked for")
    if request.draft == "ngram":
        return DraftChoice(ngram_draft(), reasons=(f"n-gram drafter as asked: {_NGRAM_WHY}",))
    if request.draft != "auto":
        return _named(request, model, packed)
    if model.n_mtp_layers:
        draft = Draft("draft-mtp", None, N_MIN, N_MAX, P_MIN)
        n = model.n_mtp_layers
        heads = "an MTP head" if n == 1 else f"{n} MTP heads"
        return DraftChoice(draft, reasons=(f"the model has {heads} of its own to draft with",))
    return _best(request, model, known, packed)


def _named(request: HostRequest, model: ModelInfo, packed: bool) -> DraftChoice:
    other = "give another model to --draft, or --draft auto, ngram or none"
    missing = not_a_file(request.draft)
    if missing:
        raise UserError(f"no drafter {request.draft!r}", missing, other)
    path = expand(request.draft)
    drafter = read_header(path)
    what = f"{label(path)} cannot draft for {title(model)}"
    why = _unfit(model, drafter)
    if why:
        raise UserError(what, why, other)
    reasons = [f"drafter {title(drafter)} as asked", *_short_ctx(request, model, drafter)]
    assert model.tokenizer is not None
    assert drafter.tokenizer is not None
    difference = tokenizer_difference(model.tokenizer, drafter.tokenizer)
    if difference:
        reasons.append(f"few of its tokens may be accepted: {difference}")
    share = bytes_per_token(drafter, packed) / bytes_per_token(model, packed)
    if share > LARGEST_SHARE:
        reasons.append(
            f"it reads {share:.0%} of what the target reads per token: "
            f"above {LARGEST_SHARE:.0%} drafting seldom pays"
        )
    return DraftChoice(model_draft(path), model=drafter, reasons=tuple(reasons))


def _unfit(model: ModelInfo, drafter: ModelInfo) -> str | None:
    """Why the server cannot use the pair."""
    if drafter.arch in DRAFT_ONLY:
        return f"a drafter of type {drafter.arch} is not supported yet"
    why = unsupported(drafter)
    if why:
        return why
    if model.tokenizer is None or drafter.tokenizer is None:
        return "the target's file has no vocabulary to compare with"
    return upstream_difference(model.tokenizer, drafter.tokenizer)


def _short_ctx(request: HostRequest, model: ModelInfo, drafter: ModelInfo) -> tuple[str, ...]:
    ctx = wanted_ctx(request, model)
    if not drafter.n_ctx_train or drafter.n_ctx_train >= ctx:
        return ()
    return (
        f"it was trained for {drafter.n_ctx_train} tokens: beyond them fewer of its tokens are "
        "accepted",
    )


def _best(
    request: HostRequest, model: ModelInfo, known: Sequence[Path], packed: bool
) -> DraftChoice:
    reads = bytes_per_token(model, packed)
    fits: list[tuple[int, str, Path, ModelInfo]] = []
    refused: list[str] = []
    for path in known:
        if _same_file(path, model.path):
            continue
        verdict = _judge(model, path, reads, packed)
        if isinstance(verdict, str):
            refused.append(f"{label(path)}: not as drafter, {verdict}")
        else:
            fits.append((bytes_per_token(verdict, packed), str(path), path, verdict))
    fits.sort(key=lambda f: f[:2])
    if not fits:
        none = "no other model is known here" if not refused else "no known model can draft for it"
        return DraftChoice(ngram_draft(), reasons=(*refused, f"{none}: {_NGRAM_WHY}"))
    cost, _, path, drafter = fits[0]
    chosen = (
        f"drafter {title(drafter)}: same tokenizer, reads {size(cost)} per token, "
        f"{cost / reads:.0%} of the target"
    )
    for more, _, other, _ in fits[1:]:
        refused.append(f"{label(other)}: not as drafter, reads more per token ({size(more)})")
    reasons = (*refused, chosen, *_short_ctx(request, model, drafter))
    return DraftChoice(model_draft(path), model=drafter, reasons=reasons)


def _judge(model: ModelInfo, path: Path, reads: int, packed: bool) -> ModelInfo | str:
    """The candidate's header, or why it is passed over."""
    try:
        drafter = read_header(path)
    except UserError as error:
        return error.why
    why = _unfit(model, drafter)
    if why is None and model.tokenizer and drafter.tokenizer:
        why = tokenizer_difference(model.tokenizer, drafter.tokenizer)
    if why:
        return why
    cost = bytes_per_token(drafter, packed)
    if cost > reads * LARGEST_SHARE:
        return (
            f"too big: it reads {size(cost)} per token, more than {LARGEST_SHARE:.0%} "
            f"of the target's {size(reads)}"
        )
    return drafter


def _same_file(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return a == b

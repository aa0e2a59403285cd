"""Which drafter is chosen, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner.drafter import N_MAX, N_MIN, P_MIN, choose_draft

Show = Callable[[ModelInfo], Path]


def at(model: ModelInfo, path: str) -> ModelInfo:
    return replace(model, path=Path(path), name=Path(path).stem)


def test_the_cheapest_with_the_same_tokenizer(models: SimpleNamespace, headers: Show) -> None:
    target = models.dense27
    other_words = models.tokens_of([f"other {i}" for i in range(1000)])
    known = [
        headers(at(models.make(**(models.small_sizes | {"n_layer": 30})), "/m/bigger.gguf")),
        headers(at(models.small, "/m/good.gguf")),
        headers(at(models.make(**(models.small_sizes | {"tokenizer": other_words})), "/m/x.gguf")),
        headers(at(models.make(n_layer=40), "/m/half.gguf")),
        headers(at(models.make(**(models.small_sizes | {"arch": "dflash"})), "/m/dflash.gguf")),
        headers(at(models.make(**(models.small_sizes | {"arch": "bert"})), "/m/bert.gguf")),
        Path("/m/broken.gguf"),
        headers(target),
    ]
    choice = choose_draft(HostRequest(target.path), target, known)
    assert choice.draft is not None
    assert choice.draft.path == Path("/m/good.gguf")
    assert (choice.draft.n_min, choice.draft.n_max, choice.draft.p_min) == (N_MIN, N_MAX, P_MIN)
    assert choice.model is not None
    assert choice.model.path == choice.draft.path
    # A line for each candidate but the target itself.
    text = "\n".join(choice.reasons)
    assert len(choice.reasons) == len(known) - 1
    for name, why in (
        ("x.gguf", "token 5 is 'other 5', the target's is 'token 5'"),
        ("half.gguf", "too big"),
        ("dflash.gguf", "not supported yet"),
        ("bert.gguf", "do not generate"),
        ("broken.gguf", "truncated"),
        ("bigger.gguf", "reads more per token"),
        ("drafter good", "same tokenizer"),
    ):
        assert any(name in line and why in line for line in choice.reasons), (name, text)


def test_files_of_hosts_have_their_names(
    models: SimpleNamespace, headers: Show, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a store every file is called by its hash."""
    blob = {n: str(tmp_path / f"sha256-{n}") for n in (1, 3, 14, 27)}
    for path in blob.values():
        Path(path).touch()
    names = {Path(path): f"family:{n}b" for n, path in blob.items()}
    monkeypatch.setattr("srhpm_plugin.planner.hosted._called", names)
    target = at(models.dense27, blob[27])
    bigger = models.make(**(models.small_sizes | {"n_layer": 30}))
    known = [
        headers(at(models.small, blob[1])),
        headers(at(bigger, blob[3])),
        headers(at(models.make(n_layer=40), blob[14])),
    ]
    choice = choose_draft(HostRequest(target.path), target, known)
    named = choose_draft(HostRequest(target.path, draft=str(known[0])), target, ())
    text = "\n".join((*choice.reasons, *named.reasons))
    assert "sha256" not in text
    for name in ("family:1b", "family:3b", "family:14b"):
        assert name in text
    with pytest.raises(UserError) as refused:
        other = models.make(**(models.small_sizes | {"arch": "bert"}))
        choose_draft(HostRequest(target.path, draft=str(headers(at(other, blob[3])))), target, ())
    assert refused.value.what == "family:3b cannot draft for family:27b"


def test_a_mixture_is_judged_by_what_it_reads(models: SimpleNamespace, headers: Show) -> None:
    # 17 GiB of experts, of which a token reads a sixteenth
    path = headers(models.moe30)
    choice = choose_draft(HostRequest(models.dense27.path), models.dense27, [path])
    assert choice.draft is not None
    assert choice.draft.path == path


def test_mtp_heads_come_first(models: SimpleNamespace, headers: Show) -> None:
    target = models.hybrid27
    choice = choose_draft(HostRequest(target.path), target, [headers(models.small)])
    assert choice.draft is not None
    assert (choice.draft.type, choice.draft.path) == ("draft-mtp", None)


def test_a_dense_drafter_for_a_hybrid_of_another_family(
    models: SimpleNamespace, headers: Show
) -> None:
    # lmstudio#1266
    hybrid = replace(models.hybrid27, n_mtp_layers=0)
    fits = choose_draft(HostRequest(hybrid.path), hybrid, [headers(models.small)])
    assert fits.draft is not None
    assert fits.draft.type == "draft-simple"
    words = models.tokens_of([f"other {i}" for i in range(1000)])
    stranger = at(models.make(**(models.small_sizes | {"tokenizer": words})), "/m/stranger.gguf")
    refused = choose_draft(HostRequest(hybrid.path), hybrid, [headers(stranger)])
    assert refused.draft is not None
    assert refused.draft.type == "ngram"
    assert "stranger.gguf: not as drafter, token 5" in refused.reasons[0]


def test_nothing_known(models: SimpleNamespace) -> None:
    choice = choose_draft(HostRequest(models.dense27.path), models.dense27, [])
    assert choice.draft is not None
    assert (choice.draft.type, choice.draft.n_min, choice.draft.n_max) == ("ngram", 0, N_MAX)
    assert "no other model is known here" in choice.reasons[0]


def test_none_and_ngram(models: SimpleNamespace) -> None:
    off = choose_draft(HostRequest(models.dense27.path, draft="none"), models.dense27, [])
    assert (off.draft, off.off_reason) == (None, "asked for")
    on = choose_draft(HostRequest(models.dense27.path, draft="ngram"), models.dense27, [])
    assert on.draft is not None
    assert on.draft.type == "ngram"


def test_a_short_drafter_context_is_said(models: SimpleNamespace, headers: Show) -> None:
    # ik_llama#732: slow past the drafter's context
    short = headers(models.make("/m/short.gguf", **(models.small_sizes | {"ctx": 2048})))
    choice = choose_draft(HostRequest(models.dense27.path, ctx=4096), models.dense27, [short])
    assert any("trained for 2048 tokens" in line for line in choice.reasons)
    enough = choose_draft(HostRequest(models.dense27.path, ctx=2048), models.dense27, [short])
    assert not any("trained for 2048 tokens" in line for line in enough.reasons)


@pytest.mark.parametrize("at_token", [5, 500])
def test_a_named_drafter_that_cannot_pair(
    at_token: int, models: SimpleNamespace, headers: Show, tmp_path: Path
) -> None:
    words = [f"token {i}" for i in range(1000)]
    words[at_token] = "else"
    path = tmp_path / "other.gguf"
    path.touch()
    sizes = models.small_sizes | {"tokenizer": models.tokens_of(words)}
    headers(models.make(path, **sizes))
    with pytest.raises(UserError) as caught:
        choose_draft(HostRequest(models.dense27.path, draft=str(path)), models.dense27, [])
    assert f"token {at_token} is 'else', the target's is 'token {at_token}'" in caught.value.line()
    assert "--draft" in caught.value.line()


def test_a_named_drafter_is_taken_with_its_faults(
    models: SimpleNamespace, headers: Show, tmp_path: Path
) -> None:
    path = tmp_path / "same.gguf"
    path.touch()
    pre = replace(models.dense27.tokenizer, pre="default")
    headers(replace(models.dense27, path=path, tokenizer=pre))
    choice = choose_draft(HostRequest(models.dense27.path, draft=str(path)), models.dense27, [])
    assert choice.draft is not None
    assert choice.draft.path == path
    text = " ".join(choice.reasons)
    assert "pre-tokenizer" in text
    assert "100% of what the target reads" in text


def test_a_named_drafter_that_is_missing(models: SimpleNamespace, tmp_path: Path) -> None:
    request = HostRequest(models.dense27.path, draft=str(tmp_path / "none.gguf"))
    with pytest.raises(UserError, match="no such file"):
        choose_draft(request, models.dense27, [])


def test_a_link_to_the_target_is_no_drafter(smollm2: Path, tmp_path: Path) -> None:
    from srhpm_plugin.gguf import read_model

    link = tmp_path / "link.gguf"
    try:
        link.hardlink_to(smollm2)
    except OSError:
        link.symlink_to(smollm2)
    choice = choose_draft(HostRequest(smollm2), read_model(smollm2), [link])
    assert choice.draft is not None
    assert choice.draft.type == "ngram"
    assert "no other model is known" in choice.reasons[0]

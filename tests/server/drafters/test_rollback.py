"""Hybrids go back over rejected tokens by choosing among the states kept, with every drafter: the
answers are those of copying all states before each pass (upstream's way) and of no drafter at all,
to the last bit of every log-probability."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.server

TARGETS = ("qwen3next", "qwen35", "qwen35moe")
KINDS = ("draft-simple", "ngram-simple")
WAYS = {"planes": "", "copy": "copy", "upstream": "off"}
# The last one repeats itself, for n-grams to find something.
PROMPTS = [[(37 * i + 11 * n) % 500 for i in range(n)] for n in (5, 20)] + [[9, 8, 7, 6, 5] * 5]
MORE = {"n_probs": 3, "ignore_eos": True, "cache_prompt": True}

INDEXED = "supports bounded partial sequence removal"
COPIED = "restoring speculative checkpoint"

Target = Callable[[str], Path]
Speculate = Callable[..., list[str | Path]]


def said(answer: dict[str, Any]) -> tuple[Any, Any]:
    return answer["tokens"], answer["completion_probabilities"]


def drafted(answers: list[dict[str, Any]], what: str = "drafted") -> int:
    return sum(int(a["timings"]["speculation"].get(what, 0)) for a in answers)


def talk(api: Any) -> list[dict[str, Any]]:
    """Goes on from each answer again and again, each time where another number of drafted tokens
    has just been rejected. The penalty keeps answers from settling on one token."""
    answers = []
    for i, prompt in enumerate(PROMPTS):
        text = list(prompt)
        for turn in range(5):
            penalty = {} if i == 2 else {"frequency_penalty": 0.4}
            answer = api.complete(text, 11 + turn, **MORE, **penalty)
            answers.append(answer)
            text += answer["tokens"] + ([] if turn % 2 else [3, 1, 4])
    return answers


@pytest.fixture(scope="session")
def plain(start: Any, tiny_target: Target) -> Callable[[str], list[dict[str, Any]]]:
    """``plain(target)``: the answers without a drafter, from upstream's operations."""

    @cache
    def run(target: str) -> list[dict[str, Any]]:
        env = {"SRHPM_ROLLBACK": "off"}
        with start("-t", 1, "-tb", 1, "--no-repack", model=tiny_target(target), env=env) as api:
            return talk(api)

    return run


@pytest.fixture(scope="session")
def speculate(tiny_drafter: Callable[[str, str], Path]) -> Speculate:
    """``speculate(kind, target, n_max)``: the arguments."""

    def args(kind: str, target: str, n_max: int) -> list[str | Path]:
        common: list[str | Path] = ["-t", "1", "-tb", "1", "--no-repack", "-lv", "5"]
        common += ["--spec-type", kind]
        if kind == "ngram-simple":
            sizes = ["--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", str(n_max)]
            return [*common, *sizes]
        lengths = ["--spec-draft-n-max", str(n_max), "--spec-draft-p-min", "0"]
        return [*common, *lengths, "--spec-draft-model", tiny_drafter(kind, target)]

    return args


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_max", [3, 7])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_answers(
    start: Any,
    plain: Any,
    speculate: Speculate,
    tiny_target: Target,
    target: str,
    kind: str,
    n_max: int,
    way: str,
) -> None:
    args = speculate(kind, target, n_max)
    with start(*args, model=tiny_target(target), env={"SRHPM_ROLLBACK": WAYS[way]}) as api:
        answers = talk(api)
    log = api.log.read_text("utf-8", "replace")
    assert [said(a) for a in answers] == [said(a) for a in plain(target)]
    assert 0 < drafted(answers, "accepted") < drafted(answers), "right and wrong drafts"
    assert all(a["timings"]["cache_n"] > 0 for i, a in enumerate(answers) if i % 5)
    assert (INDEXED in log) is (way == "planes")
    assert (COPIED in log) is (way != "planes")


def ask(api: Any, slot: int) -> dict[str, Any]:
    penalty = {} if slot == 2 else {"frequency_penalty": 0.4}
    answer: dict[str, Any] = api.complete(PROMPTS[slot], 60, id_slot=slot, **MORE, **penalty)
    return answer


def later(api: Any, slot: int) -> dict[str, Any]:
    time.sleep(0.01 * (2 - slot))
    return ask(api, slot)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_several_slots(
    start: Any, speculate: Speculate, tiny_target: Target, target: str, kind: str
) -> None:
    """Each slot goes back by itself, from passes that hold tokens of all of them; the last slot's
    request comes first, as that is where Qwen3-Next's planes went wrong. It copies by now."""
    model, wide = tiny_target(target), {"SRHPM_EXACT": "128"}  # passes with a prompt in them, too
    with start("-t", 1, "-tb", 1, "--no-repack", model=model, slots=3, env=wide) as api:
        want = [said(ask(api, slot)) for slot in range(3)]
    args = speculate(kind, target, 7)
    with (
        start(*args, model=model, slots=3, env=wide) as api,
        ThreadPoolExecutor(3) as pool,
    ):
        answers = list(pool.map(lambda slot: later(api, slot), range(3)))
    log = api.log.read_text("utf-8", "replace")
    assert [said(a) for a in answers] == want
    assert (INDEXED in log) is (target != "qwen3next")
    assert (COPIED in log) is (target == "qwen3next")
    assert drafted(answers) > 0
    # n-grams find only what repeats itself here, and then are right
    assert drafted(answers, "accepted") < drafted(answers) or kind == "ngram-simple"


def test_drafts_longer_than_what_is_kept(
    start: Any, plain: Any, speculate: Speculate, tiny_target: Target
) -> None:
    """Eight states are kept; a longer draft is preceded by a copy, the others are not."""
    args = speculate("draft-simple", "qwen3next", 12)
    with start(*args, model=tiny_target("qwen3next"), env={"SRHPM_EXACT": "16"}) as api:
        answers = talk(api)
    log = api.log.read_text("utf-8", "replace")
    assert [a["tokens"] for a in answers] == [a["tokens"] for a in plain("qwen3next")]
    assert INDEXED in log
    assert COPIED in log


def test_ngrams_too_long_to_keep_states_for(
    start: Any, plain: Any, speculate: Speculate, tiny_target: Target
) -> None:
    args = speculate("ngram-simple", "qwen3next", 12)
    with start(*args, model=tiny_target("qwen3next"), env={"SRHPM_EXACT": "16"}) as api:
        answers = talk(api)
    assert [a["tokens"] for a in answers] == [a["tokens"] for a in plain("qwen3next")]
    assert INDEXED not in api.log.read_text("utf-8", "replace")

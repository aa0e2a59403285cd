"""A drafter that keeps the rows of its draft proposes what one that computes them twice does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

PROMPTS = [
    "Write three sentences about the sea in winter.",
    "Count from one to twenty in words.",
    "def fibonacci(n):",
]
TWICE = {"SRHPM_DRAFTER_ROWS": "twice"}
LONG = "The lighthouse keeper wrote into his book, night after night, what he had seen. "


@pytest.fixture(scope="module")
def twice(start: Any, draft_args: list[Any]) -> Iterator[Any]:
    with start(*draft_args, env=TWICE) as api:
        yield api


def seen(answer: dict[str, Any]) -> tuple[list[int], list[int], list[int]]:
    """What was said, and how often the drafter was asked and right at each place."""
    spec = answer["timings"]["speculation"]
    return answer["tokens"], spec["drafted_per_position"], spec["accepted_per_position"]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_same_drafts(drafted: Any, twice: Any, prompt: str) -> None:
    got = drafted.complete(prompt, 120, ignore_eos=True)
    assert seen(got) == seen(twice.complete(prompt, 120, ignore_eos=True))
    spec = got["timings"]["speculation"]
    assert 0 < spec["accepted"] < spec["drafted"], "some drafts are right to their end, some not"


def test_the_rest_of_a_context(drafted: Any, twice: Any) -> None:
    """A draft that ends an answer, and the next one on the same rows."""
    answers = []
    for api in (drafted, twice):
        seen_here = []
        for n in (1, 2, 3, 4, 5, 9, 17, 33):
            got = api.complete(LONG, n, cache_prompt=True, ignore_eos=True)
            more = api.complete([*got["tokens"]], 12, cache_prompt=True, ignore_eos=True)
            text = api.post("/tokenize", {"content": LONG})["tokens"]
            longer = api.complete([*text, *got["tokens"]], 24, cache_prompt=True, ignore_eos=True)
            seen_here.append([seen(a) for a in (got, more, longer)])
        answers.append(seen_here)
    assert answers[0] == answers[1]


def test_a_context_that_shifts(start: Any, draft_args: list[Any]) -> None:
    """A row that waited is computed where it shifts to, not turned there, so drafts may differ."""
    answers = []
    for env in ({}, TWICE):
        with start(*draft_args, "--context-shift", ctx=256, env=env) as api:
            got = api.complete(LONG * 4, 400, ignore_eos=True)
            assert got["truncated"], "it has shifted"
            answers.append(got)
    assert answers[0]["tokens"] == answers[1]["tokens"]
    accepted = [a["timings"]["speculation"]["accepted"] for a in answers]
    assert accepted[0] > 0.9 * accepted[1]


def test_slots_at_once(start: Any, plain: Any, draft_args: list[Any]) -> None:
    """Each slot's token waits for its own draft; those that end leave the others alone."""
    want = [plain.complete(p, n, ignore_eos=True)["tokens"] for p, n in slots()]
    with start(*draft_args, slots=3) as api, ThreadPoolExecutor(3) as pool:
        for _ in range(2):
            asked = [pool.submit(api.complete, p, n, ignore_eos=True) for p, n in slots()]
            got = [a.result() for a in asked]
            assert [g["tokens"] for g in got] == want
            assert all(g["timings"]["speculation"]["accepted"] > 0 for g in got)


def slots() -> list[tuple[str, int]]:
    return [(PROMPTS[0], 90), (PROMPTS[1], 33), (PROMPTS[2], 60), (LONG, 45), (PROMPTS[1], 70)]


def test_hanging_up_in_a_draft(drafted: Any, plain: Any) -> None:
    """What waited when a client went is there for the next that goes on."""
    body = {"prompt": LONG, "n_predict": 400, "temperature": 0, "stream": True, "ignore_eos": True}
    with httpx.stream("POST", drafted.url + "/completion", json=body, timeout=60) as answer:
        lines = answer.iter_lines()
        for _ in range(20):
            next(lines)
    got = drafted.complete(LONG, 60, cache_prompt=True, ignore_eos=True)
    assert got["tokens"] == plain.complete(LONG, 60, ignore_eos=True)["tokens"]
    assert got["timings"]["speculation"]["accepted"] > 0

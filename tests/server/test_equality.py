"""With any drafter the answer is the plain one, token for token, whatever a client asks for."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

REPEATING = "List the numbers: 1, 2, 3, 4, 5, 6, 7, 8. List the numbers again: 1, 2, 3, 4,"
PROMPTS = [
    "Write three sentences about the sea in winter.",
    "Count from one to twenty in words.",
    "def fibonacci(n):",
    REPEATING,
]


def spec(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["timings"]["speculation"]
    return found


@pytest.mark.parametrize("prompt", PROMPTS)
def test_completion(plain: Any, drafted: Any, prompt: str) -> None:
    want = plain.complete(prompt, 96)
    got = drafted.complete(prompt, 96)
    assert got["tokens"] == want["tokens"]
    assert 0 < spec(got)["accepted"] < spec(got)["drafted"], "the drafter must be wrong sometimes"


def test_ngram_completion(plain: Any, ngram: Any) -> None:
    want = plain.complete(REPEATING, 160)
    got = ngram.complete(REPEATING, 160)
    assert got["tokens"] == want["tokens"]
    assert spec(got)["accepted"] > 0
    assert len(spec(got)["drafted_per_position"]) <= spec(got)["n_max"]


def test_across_kv_256_and_512(plain: Any, speculating: Any) -> None:
    """Upstream splits attention over the cache for single tokens from 512 entries on."""
    prompt = "The history of the city. " * 40
    want = plain.complete(prompt, 300)
    got = speculating.complete(prompt, 300)
    assert got["tokens"] == want["tokens"]


@pytest.mark.parametrize("kind", ["draft", "ngram"])
def test_chat_then_completion_then_chat_on_one_slot(
    start: Any, draft_args: list[str | Path], kind: str
) -> None:
    """The prompt cache is reused in between: a rejected draft must leave nothing in it.

    Both servers are fresh: which part of a prompt is taken from the cache decides how the rest is
    batched, so histories must be alike, with a drafter or without.
    """
    ngram_args = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]

    def talk(api: Any) -> list[Any]:
        first = api.chat("Name three rivers.", cache_prompt=True)
        text = first["choices"][0]["message"]["content"]
        second = api.complete("Once upon a time", 40, cache_prompt=True)
        third = api.chat("Name three rivers.", text, "And three mountains.", cache_prompt=True)
        fourth = api.chat(
            "Name three rivers.", text, "And three mountains, please.", cache_prompt=True
        )
        answers = [a["choices"][0]["message"]["content"] for a in (first, third, fourth)]
        return [*answers, second["tokens"], fourth["timings"]["cache_n"] > 0]

    with start() as api:
        want = talk(api)
    with start(*(draft_args if kind == "draft" else ngram_args)) as api:
        got = talk(api)
    assert got == want


def test_stop_string(plain: Any, speculating: Any) -> None:
    prompt = "Count: one, two, three, four, five, six, seven, eight, nine, ten. Count: one, two,"
    want = plain.complete(prompt, 80, stop=["seven"])
    got = speculating.complete(prompt, 80, stop=["seven"])
    assert want["stop_type"] == got["stop_type"] == "word"
    assert got["content"] == want["content"]
    assert "seven" not in got["content"]


def test_token_budget(plain: Any, speculating: Any) -> None:
    """A draft may not run over the requested number of tokens."""
    for n in (1, 2, 3, 5, 8):
        want = plain.complete(REPEATING, n)
        got = speculating.complete(REPEATING, n)
        assert got["tokens"] == want["tokens"]
        assert len(got["tokens"]) <= n


def test_json_schema(plain: Any, speculating: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    want = plain.chat("Describe a person as JSON.", n=80, response_format=form)
    got = speculating.chat("Describe a person as JSON.", n=80, response_format=form)
    text = got["choices"][0]["message"]["content"]
    assert text == want["choices"][0]["message"]["content"]
    assert set(json.loads(text)) == {"name", "age"}


def test_grammar(plain: Any, speculating: Any) -> None:
    """The grammar holds inside drafted tokens too."""
    grammar = 'root ::= ("ab" | "ba" | " ")+'
    want = plain.complete("abba abba", 60, grammar=grammar)
    got = speculating.complete("abba abba", 60, grammar=grammar)
    assert got["content"] == want["content"]
    assert set(got["content"]) <= set("ab ")


def test_logprobs_of_drafted_tokens(plain: Any, drafted: Any) -> None:
    """Upstream reports 0.0 for every speculated token."""
    prompt = "The capital of France is"
    want = plain.complete(prompt, 48, n_probs=3)
    got = drafted.complete(prompt, 48, n_probs=3)
    assert spec(got)["accepted"] > 0
    assert len(got["completion_probabilities"]) == len(got["tokens"])
    assert got["completion_probabilities"] == want["completion_probabilities"]


def test_probabilities_after_sampling_switch_drafting_off(plain: Any, drafted: Any) -> None:
    more = {"n_probs": 2, "post_sampling_probs": True}
    want = plain.complete("The capital of France is", 12, **more)
    got = drafted.complete("The capital of France is", 12, **more)
    assert got["completion_probabilities"] == want["completion_probabilities"]
    assert spec(got)["drafted"] == 0
    assert "probabilities after sampling" in spec(got)["off"]


def test_openai_logprobs(plain: Any, drafted: Any) -> None:
    want = plain.chat("Say hello.", n=24, logprobs=True, top_logprobs=2)
    got = drafted.chat("Say hello.", n=24, logprobs=True, top_logprobs=2)
    assert got["choices"][0]["logprobs"] == want["choices"][0]["logprobs"]


@pytest.mark.parametrize("kind", ["draft", "ngram"])
def test_parallel_slots(plain: Any, start: Any, draft_args: list[str | Path], kind: str) -> None:
    """Slots decoded together answer as each would alone."""
    ngram_args = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
    want = [plain.complete(p, 64)["tokens"] for p in PROMPTS]
    with start(*(draft_args if kind == "draft" else ngram_args), slots=4) as api:
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda p: api.complete(p, 64), PROMPTS))
        got = [a["tokens"] for a in answers]
    assert got == want
    if kind == "draft":
        assert all(spec(a)["accepted"] > 0 for a in answers)


@pytest.mark.parametrize("kind", ["draft", "ngram"])
def test_context_shift(start: Any, draft_args: list[str | Path], kind: str) -> None:
    """Generating far beyond the context neither crashes nor changes the answer."""
    ngram_args = ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"]
    shift = ["--context-shift", "--keep", "4"]
    prompt = "Count upwards in words, one number a line: one"
    with start(*shift, ctx=256) as api:
        want = api.complete(prompt, 420, ignore_eos=True)
    with start(*shift, *(draft_args if kind == "draft" else ngram_args), ctx=256) as api:
        got = api.complete(prompt, 420, ignore_eos=True)
    assert want["truncated"]
    assert len(got["tokens"]) == 420
    assert got["tokens"] == want["tokens"]


def test_context_full_without_shift(start: Any, draft_args: list[str | Path]) -> None:
    prompt = "Count upwards in words, one number a line: one"
    with start(ctx=256) as api:
        want = api.complete(prompt, 420, ignore_eos=True)
    with start(*draft_args, ctx=256) as api:
        got = api.complete(prompt, 420, ignore_eos=True)
    assert want["truncated"]
    assert want["stop_type"] == got["stop_type"] == "limit"
    assert got["tokens"] == want["tokens"]


def test_drafter_context_is_the_targets(plain: Any, drafted: Any) -> None:
    """Far into a long context the drafter still sees it all, and drafts as well as before."""
    prompt = "A tale. " + "The old man walked to the sea and the sea was calm. " * 110
    got = drafted.complete(prompt, 48)
    assert got["timings"]["prompt_n"] > 1200
    assert spec(got)["accepted"] / spec(got)["drafted"] > 0.5
    assert got["tokens"] == plain.complete(prompt, 48)["tokens"]


def test_repeated_prompt_drafts_the_same(speculating: Any) -> None:
    """A drafter that remembers the last answer would replay it and inflate every figure."""
    first = spec(speculating.complete(REPEATING, 64))
    again = [spec(speculating.complete(REPEATING, 64)) for _ in range(2)]
    assert again == [first, first]


def test_sampling_is_drafted_too(drafted: Any) -> None:
    """Sampled requests speculate; the same seed gives the same answer."""
    body = {"temperature": 0.8, "seed": 7, "top_k": 40}
    one = drafted.complete(PROMPTS[0], 48, **body)
    two = drafted.complete(PROMPTS[0], 48, **body)
    assert one["tokens"] == two["tokens"]
    assert spec(one)["drafted"] > 0

"""``SRHPM_EVENTS=pass``: the tokens of a verify pass are one event, and nothing else is another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import httpx
import pytest

PROMPT = "Count from one to forty in words: one, two, three,"


@pytest.fixture(scope="module")
def by_pass(start: Any, draft_args: list[Any]) -> Iterator[Any]:
    with start(*draft_args, slots=2, env={"SRHPM_EVENTS": "pass"}) as api:
        yield api


def stream(api: Any, n: int, **more: Any) -> Iterator[dict[str, Any]]:
    body = {"prompt": PROMPT, "n_predict": n, "temperature": 0, "stream": True, **more}
    with httpx.stream("POST", f"{api.url}/completion", json=body, timeout=120) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def whole(events: list[dict[str, Any]]) -> tuple[str, list[int]]:
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    return "".join(e["content"] for e in events), [t for e in events for t in e["tokens"]]


@pytest.mark.parametrize("n", [*range(1, 12), 64])  # ends at each place of a pass
def test_the_same_in_fewer_events(by_pass: Any, drafted: Any, n: int) -> None:
    together, alone = list(stream(by_pass, n)), list(stream(drafted, n))
    assert whole(together) == whole(alone)
    assert together[-1]["timings"]["predicted_n"] == alone[-1]["timings"]["predicted_n"] == n
    assert [e["tokens_predicted"] for e in together] == sorted(
        e["tokens_predicted"] for e in together
    )
    if n == 64:
        passes = together[-1]["timings"]["speculation"]["passes"]
        assert len(alone) == n + 1
        assert len(together) <= passes + 3  # the prompt's own token, the last, the end


@pytest.mark.parametrize("stop", [" five", " eight, nine", " twelve,"])
def test_stop_strings(by_pass: Any, drafted: Any, stop: str) -> None:
    together, alone = (list(stream(api, 64, stop=[stop])) for api in (by_pass, drafted))
    assert whole(together)[0] == whole(alone)[0]
    assert together[-1]["stop_type"] == alone[-1]["stop_type"] == "word"


def test_probabilities_stay_with_their_tokens(by_pass: Any, drafted: Any) -> None:
    together, alone = (list(stream(api, 24, n_probs=2)) for api in (by_pass, drafted))
    assert [e["tokens"] for e in together] == [e["tokens"] for e in alone]
    assert all(len(e["completion_probabilities"]) == 1 for e in together[:-1])


def test_other_apis(by_pass: Any) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 24,
        "stream": True,
    }
    body |= {"temperature": 0, "ignore_eos": True}
    events = []
    with httpx.stream("POST", f"{by_pass.url}/v1/chat/completions", json=body, timeout=60) as got:
        for line in got.iter_lines():
            if line.startswith("data: {"):
                events += json.loads(line.removeprefix("data: "))["choices"]
    assert sum(bool(e["delta"].get("content")) for e in events) > 20


def test_what_was_held_of_one_that_hung_up_goes_to_nobody(by_pass: Any, drafted: Any) -> None:
    expected = whole(list(stream(drafted, 16)))
    for taken in range(1, 9):
        hung_up = stream(by_pass, 400, prompt="A very long story of a fox:", ignore_eos=True)
        list(islice(hung_up, taken))
        hung_up.close()
        assert whole(list(stream(by_pass, 16, id_slot=0))) == expected
        assert whole(list(stream(by_pass, 16, id_slot=1))) == expected


def test_letters_of_several_tokens(by_pass: Any, drafted: Any) -> None:
    more = {"prompt": "Emojis: 🦊🐢🦉🦊🐢🦉🦊🐢🦉", "ignore_eos": True}
    assert whole(list(stream(by_pass, 48, **more))) == whole(list(stream(drafted, 48, **more)))

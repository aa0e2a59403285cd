"""A client that hangs up while its prompt is read: the server stops reading, and what it answers
next is what a server answers that nobody has left."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

pytestmark = pytest.mark.server

BATCH = 1024  # tokens that the server decodes at once
BATCHES: list[Any] = ["-b", BATCH]
SHORT = "Count from one to twenty in words."
ROOM: dict[str, Any] = {"ctx": 8192, "exact": False}


def prompt(n: int, seed: int = 0) -> list[int]:
    """``n`` tokens that every model here has."""
    return [(37 * i + 11 * (i // 60) + seed) % 450 + 3 for i in range(n)]


LONG = prompt(3000)
# A tiny model reads few tokens at once, or nobody could hang up in time.
TINY_BATCH, TINY_LONG = 2000, prompt(4000)
SLOW: list[Any] = ["-b", TINY_BATCH, "-t", 1, "-tb", 1, "--no-repack", "-ub", 8]


def hang_up(api: Any, tokens: list[int], processed: int, **more: Any) -> None:
    """Asks, and goes once that many tokens were processed: while the next batch is read."""
    body = {"prompt": tokens, "n_predict": 16, "stream": True, "return_progress": True, **more}
    url = api.url + "/completion"
    with httpx.stream("POST", url, json=body, timeout=300, trust_env=False) as answer:
        for line in answer.iter_lines():
            if not line.startswith("data: "):
                continue
            progress = json.loads(line[6:]).get("prompt_progress")
            assert progress is not None, "the prompt was over before anybody could hang up"
            if progress["processed"] >= processed:
                return


def lose_patience(api: Any, prompts: Any, seconds: float) -> None:
    """Waits for a whole answer, but not for long."""
    body = {"prompt": prompts, "n_predict": 16}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(api.url + "/completion", json=body, timeout=seconds, trust_env=False)


def until_free(api: Any) -> None:
    for _ in range(6000):
        slots = httpx.get(api.url + "/slots", trust_env=False).json()
        if not any(slot["is_processing"] for slot in slots):
            return
        time.sleep(0.02)
    pytest.fail("a slot stays busy")


def held(api: Any) -> list[int]:
    """How many tokens the slots held when they were released, oldest first."""
    released: list[str] = re.findall(r"stop processing: n_tokens = (\d+)", api.log.read_text())
    return [int(n) for n in released]


def said(answer: dict[str, Any]) -> Any:
    """Tokens with the exact log-probabilities of the best ones at each place."""
    return answer["tokens"], answer["completion_probabilities"]


def ask(api: Any, tokens: Any, **more: Any) -> Any:
    how = {"n_probs": 3, "cache_prompt": True, "ignore_eos": True, **more}
    return said(api.complete(tokens, 16, **how))


@pytest.fixture(scope="module")
def fresh(start: Any) -> dict[str, Any]:
    """What a server says that nobody has left: nothing cached."""
    with start(*BATCHES, **ROOM) as api:
        return {"short": ask(api, SHORT), "long": ask(api, LONG)}


@pytest.mark.parametrize("stream", [True, False])
def test_the_first_batch_is_not_read_on(start: Any, fresh: dict[str, Any], stream: bool) -> None:
    with start(*BATCHES, **ROOM) as api:
        if stream:
            hang_up(api, LONG, 0)
        else:
            lose_patience(api, LONG, 0.3)
        until_free(api)
        assert held(api)[-1] == 0
        assert ask(api, SHORT) == fresh["short"]
        assert ask(api, LONG) == fresh["long"]


def test_batches_before_stay(start: Any, fresh: dict[str, Any]) -> None:
    with start(*BATCHES, **ROOM) as api:
        hang_up(api, LONG, BATCH)
        until_free(api)
        assert held(api)[-1] == BATCH
        again = api.complete(LONG, 16, n_probs=3, cache_prompt=True, ignore_eos=True)
        assert again["timings"]["cache_n"] == BATCH
        assert said(again) == fresh["long"]
        assert ask(api, SHORT) == fresh["short"]


def test_the_switch_restores_upstreams_way(start: Any) -> None:
    with start(*BATCHES, env={"SRHPM_HANG_UP": "late"}, **ROOM) as api:
        hang_up(api, LONG, BATCH)
        until_free(api)
        assert held(api)[-1] == 2 * BATCH


def test_prompts_of_one_request_share_a_batch(start: Any, fresh: dict[str, Any]) -> None:
    """All of whose clients have gone."""
    both = [prompt(500, 1), prompt(500, 2)]
    with start(*BATCHES, slots=2, **ROOM) as api:
        lose_patience(api, both, 0.3)
        until_free(api)
        assert held(api) == [0, 0]
        assert ask(api, LONG) == fresh["long"]
        assert ask(api, SHORT) == fresh["short"]


def test_who_waits_for_the_batch_gets_the_answer(start: Any, fresh: dict[str, Any]) -> None:
    """Somebody else's tokens are in it: it is computed to its end."""
    with start(*BATCHES, slots=2, **ROOM) as api:
        alone = api.complete(SHORT, 150, ignore_eos=True, id_slot=0)["tokens"]
        with ThreadPoolExecutor(1) as pool:
            other = pool.submit(api.complete, SHORT, 150, ignore_eos=True, id_slot=0)
            hang_up(api, LONG, BATCH // 2, id_slot=1)
            assert other.result()["tokens"] == alone
        until_free(api)
        assert held(api)[1] > BATCH * 3 // 2
        assert ask(api, LONG, id_slot=1, cache_prompt=False) == fresh["long"]


@pytest.mark.parametrize("arch", ["qwen3", "qwen35"])
def test_a_resting_slot_keeps_its_own(
    start: Any, tiny_target: Callable[[str], Path], arch: str
) -> None:
    def talk(api: Any, leave: bool) -> list[Any]:
        answers = [ask(api, prompt(300, 5), id_slot=0)]
        for processed in (0, TINY_BATCH) if leave else ():
            hang_up(api, TINY_LONG, processed, id_slot=1)
            until_free(api)
            assert held(api)[-1] <= processed
        answers.append(ask(api, prompt(340, 5), id_slot=0))
        return answers

    with start(*SLOW, slots=2, model=tiny_target(arch), **ROOM) as api:
        undisturbed = talk(api, False)
        long = ask(api, TINY_LONG, id_slot=1)
    with start(*SLOW, slots=2, model=tiny_target(arch), **ROOM) as api:
        assert talk(api, True) == undisturbed
        assert ask(api, TINY_LONG, id_slot=1) == long


@pytest.mark.parametrize(
    ("kind", "arch"),
    [
        ("draft-simple", "qwen35"),
        ("draft-eagle3", "qwen3"),
        ("draft-dflash", "qwen3"),
        ("draft-mtp", "qwen35"),
        ("draft-mtp", "step35"),
    ],
)
def test_with_a_drafter(
    start: Any,
    tiny_target: Callable[[str], Path],
    tiny_drafter: Callable[[str, str], Path],
    kind: str,
    arch: str,
) -> None:
    other = prompt(4000, 7)
    args = [*SLOW, "--spec-type", kind, "--spec-draft-n-max", 4]
    if kind != "draft-mtp":
        args += ["--spec-draft-model", tiny_drafter(kind, arch)]
    asked = [(prompt(60, 9), other), (TINY_LONG, TINY_LONG), (prompt(60, 10), other)]
    with start(*args, model=tiny_target(arch), **ROOM) as api:
        undisturbed = [ask(api, tokens) for tokens, _ in asked]
    with start(*args, model=tiny_target(arch), **ROOM) as api:
        answers = []
        for tokens, left in asked:
            for processed in (0, TINY_BATCH):
                hang_up(api, left, processed)
                until_free(api)
                assert held(api)[-1] <= processed
            answers.append(ask(api, tokens))
    assert answers == undisturbed


def test_a_drafter_does_not_read_on_either(
    start: Any, fresh: dict[str, Any], smollm2: Path
) -> None:
    """It has the model's own size here, so about every second hang-up meets it reading."""
    with start(
        *BATCHES, "--spec-type", "draft-simple", "--spec-draft-model", smollm2, **ROOM
    ) as api:
        for seconds in (1.0, 1.5, 2.0, 3.0, 4.0, 5.0):
            with contextlib.suppress(pytest.fail.Exception):  # a fast machine has the answer
                lose_patience(api, LONG, seconds)
            until_free(api)
            assert held(api)[-1] % BATCH == 0 or held(api)[-1] > len(LONG)
        assert ask(api, SHORT) == fresh["short"]
        assert ask(api, LONG)[0] == fresh["long"][0]


@pytest.mark.skipif(sys.platform == "win32", reason="no signal asks a process to stop there")
def test_stopping_does_not_wait_for_the_batch(start: Any) -> None:
    with start(*BATCHES, **ROOM) as api:
        body = {"prompt": LONG, "stream": True}
        with httpx.stream("POST", api.url + "/completion", json=body, trust_env=False):
            port = api.url.rpartition(":")[2]
            (server,) = (c for c in psutil.Process().children() if port in c.cmdline())
            server.terminate()
            for _ in range(6000):
                if held(api):
                    break
                time.sleep(0.02)
        assert held(api) == [0]

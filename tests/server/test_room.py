"""Several slots that draft at once share a pass."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

PROMPTS = [
    "Write three sentences about the sea in winter.",
    "Count from one to twenty in words.",
    "def fibonacci(n):",
    "The lighthouse keeper wrote into his book, night after night, what he had seen. ",
]
LIMIT = {"SRHPM_PASS_TOKENS": "8"}


def at_once(api: Any, n: int, tokens: int = 60) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(n) as pool:
        asked = [
            pool.submit(api.complete, PROMPTS[i % len(PROMPTS)], tokens, ignore_eos=True)
            for i in range(n)
        ]
        return [a.result() for a in asked]


def spec(answer: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = answer["timings"]["speculation"]
    return found


def test_alone_a_slot_drafts_as_it_likes(start: Any, draft_args: list[Any]) -> None:
    args = list(draft_args)
    args[args.index("--spec-draft-p-min") + 1] = "0.4"
    with start(*args, slots=2, env=LIMIT) as api:
        (alone,) = at_once(api, 1)
        together = at_once(api, 2)
    assert len(spec(alone)["drafted_per_position"]) == 7
    # four tokens of each fill a pass of eight; while one waits for its prompt the other has more
    drafted = [spec(a)["drafted_per_position"] for a in together]
    assert all(d[0] > 0 for d in drafted)
    assert sum(d[3] if len(d) > 3 else 0 for d in drafted) < sum(d[0] for d in drafted) / 2


def test_no_room_is_said(start: Any, plain: Any, draft_args: list[Any]) -> None:
    with start(*draft_args, slots=6, env={"SRHPM_PASS_TOKENS": "4"}) as api:
        answers = at_once(api, 6)
        again = api.complete(PROMPTS[0], 40, ignore_eos=True)
    offs = [spec(a).get("off") for a in answers]
    assert "the tokens of other requests fill the passes" in offs
    assert spec(again)["accepted"] > 0, "with room again it drafts again"
    assert again["tokens"] == plain.complete(PROMPTS[0], 40, ignore_eos=True)["tokens"]

"""Every kind of drafter, on a transformer and on a hybrid with recurrent layers: the answer is the
plain one to the last bit, and three tokens are always proposed, more while the drafter is sure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.server

N_MIN, N_MAX = 3, 7
NEVER = 1.5  # a p_min no token reaches
PROMPTS = [[(37 * i + 11 * n) % 500 for i in range(n)] for n in (5, 20, 60)]
FOLLOW_UP = [3, 1, 4, 1, 5]

# The kinds that write each drafted token's probability, as p_min sees it, to the debug log.
LOGGED = ("draft-simple", "draft-dflash", "draft-eagle3", "draft-mtp")


@dataclass(frozen=True)
class Case:
    """One drafter on one target; an MTP head is part of its target."""

    kind: str
    target: str

    @property
    def spec_type(self) -> str:
        return "draft-dflash" if self.kind == "draft-dflash2" else self.kind

    def __str__(self) -> str:
        return f"{self.kind} on {self.target}"


CASES = [
    Case("draft-dflash", "qwen3"),
    Case("draft-dflash", "qwen35"),
    Case("draft-dflash2", "qwen3"),
    Case("draft-dflash2", "qwen35"),
    Case("draft-dspark", "qwen3"),
    Case("draft-dspark", "qwen35"),
    Case("draft-eagle3", "qwen3"),
    Case("draft-eagle3", "qwen35"),
    Case("draft-mtp", "qwen35"),
    Case("draft-mtp", "step35"),
    Case("draft-simple", "qwen35"),
]


@dataclass(frozen=True)
class Run:
    """What one server answered, and its log."""

    answers: list[dict[str, Any]]
    log: str

    @property
    def said(self) -> list[Any]:
        """Tokens with the exact log-probabilities of the best ones at each place."""
        return [(a["tokens"], a["completion_probabilities"]) for a in self.answers]

    @property
    def specs(self) -> list[dict[str, Any]]:
        return [a["timings"]["speculation"] for a in self.answers]

    def total(self, name: str) -> list[int]:
        """A per-position count over all answers."""
        lists = [spec[name] for spec in self.specs]
        return [sum(at[i] for at in lists if i < len(at)) for i in range(N_MAX)]


def talk(api: Any) -> list[dict[str, Any]]:
    """Asks each prompt and goes on from its answer, with what the cache holds of it.

    The penalty keeps the answers from settling on one token, or all drafts would be right.
    """
    more = {"n_probs": 3, "frequency_penalty": 0.4, "ignore_eos": True, "cache_prompt": True}
    answers = []
    for prompt in PROMPTS:
        first = api.complete(prompt, 32, **more)
        answers += [first, api.complete([*prompt, *first["tokens"], *FOLLOW_UP], 12, **more)]
    return answers


Draft = Callable[..., Run]


@pytest.fixture(scope="session")
def plain(start: Any, tiny_target: Callable[[str], Path]) -> Callable[[str], Run]:
    """``plain(target)``: the answers without a drafter."""

    @cache
    def run(target: str) -> Run:
        with start("-t", 1, "-tb", 1, "--no-repack", model=tiny_target(target)) as api:
            return Run(talk(api), "")

    return run


@pytest.fixture
def draft(
    start: Any,
    tiny_target: Callable[[str], Path],
    tiny_drafter: Callable[[str, str], Path],
    plain: Callable[[str], Run],
) -> Draft:
    """``draft(case, p_min, n_max=7)``: the answers, checked to be those without a drafter."""

    def run(case: Case, p_min: float, *more: str, n_max: int = N_MAX) -> Run:
        args = ["-t", 1, "-tb", 1, "--no-repack", "--spec-type", case.spec_type, *more]
        args += ["--spec-draft-n-max", n_max, "--spec-draft-p-min", p_min]
        args += ["--srhpm-draft-n-min", N_MIN]
        if case.kind != "draft-mtp":
            args += ["--spec-draft-model", tiny_drafter(case.kind, case.target)]
        with start(*args, model=tiny_target(case.target)) as api:
            answers = talk(api)
        result = Run(answers, api.log.read_text("utf-8", "replace"))
        assert result.said == plain(case.target).said
        assert {spec["type"] for spec in result.specs} == {case.spec_type}
        return result

    return run


def assert_length(run: Run, n: int) -> None:
    """All drafts are of ``n`` tokens, but for the room that the end of an answer leaves."""
    for spec in run.specs:
        at = spec["drafted_per_position"]
        assert len(at) <= n
        # each pass leaves at least a token less room, so at most i passes end before position i
        assert all(have >= spec["passes"] - i for i, have in enumerate(at))
    assert run.total("drafted_per_position")[n - 1] > 0


def drafts(log: str) -> list[tuple[int, list[float]]]:
    """Of each draft in a debug log the room it had, and the probability of each token looked at."""
    found: list[tuple[int, list[float]]] = []
    room = 0
    line = r"max possible draft: (-?\d+)|draft candidate +0, pos +(\d+): +\d+ \( *([\d.]+)\)"
    for space, position, probability in re.findall(line, log):
        if space:
            room = int(space)
            continue
        if position == "0":
            found.append((room, []))
        found[-1][1].append(float(probability))
    return found


def due_length(room: int, probabilities: list[float], p_min: float) -> int:
    """The policy, said once more."""
    doubts = [i for i, p in enumerate(probabilities) if i >= N_MIN and p < p_min]
    return min([room, N_MAX, *doubts])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_only_three(draft: Draft, case: Case) -> None:
    """``n_max`` 3: the draft ends there, however sure the drafter is."""
    assert_length(draft(case, 0.75, n_max=N_MIN), N_MIN)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_never_sure(draft: Draft, case: Case) -> None:
    """Doubt about every token ends no draft before three, where upstream would not draft at all."""
    assert_length(draft(case, NEVER), N_MIN)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_longer_while_sure(draft: Draft, case: Case) -> None:
    full = draft(case, 0.0, "-lv", "5")
    assert_length(full, N_MAX)
    accepted, passes = full.total("accepted_per_position"), sum(s["passes"] for s in full.specs)
    assert 0 < accepted[0] < passes, "right and wrong drafts"
    # a selector, or a head of its own for each place, seldom says what such a target says
    if case.kind != "draft-dflash2" and case.target != "step35":
        assert accepted[0] > accepted[N_MIN] > 0, "wrong late in a draft, too"

    if case.kind not in LOGGED:
        run = draft(case, 0.7)
        at = run.total("drafted_per_position")
        # the end of an answer keeps at most three drafts from a fourth token, the others ended
        assert at[N_MIN] < sum(s["passes"] for s in run.specs) - N_MIN * len(run.answers)
        assert at[N_MAX - 1] > 0
        return

    # between what the drafter says from the fourth token on; the log rounds to three places
    beyond = sorted({p for _, ps in drafts(full.log) for p in ps[N_MIN:] if p < 1})
    p_min = beyond[len(beyond) // 2] + 0.0005
    run = draft(case, p_min, "-lv", "5")
    seen = drafts(run.log)
    lengths = [due_length(room, ps, p_min) for room, ps in seen]
    at = run.total("drafted_per_position")
    assert at == [sum(n > i for n in lengths) for i in range(N_MAX)]
    assert at[N_MAX - 1] > 0
    assert any(n < min(room, N_MAX) for n, (room, _) in zip(lengths, seen, strict=True))

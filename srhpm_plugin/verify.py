"""Plain greedy against a plan, token by token: is speculation really invisible in the output?"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from .backend import Command
from .bench.prompts import Prompt
from .launch.client import Client, Completion
from .launch.server import Progress, serve

_CANDIDATES = 20  # asked for at the first difference


@dataclass(frozen=True)
class Side:
    """One of the two runs: a name for messages and the server to start."""

    name: str
    command: Command
    ready_path: str = "/health"


@dataclass(frozen=True)
class Difference:
    """The first place at which two outputs part.

    Attributes:
        prompt: the prompt's name.
        position: index of the token in the output, from 0.
        plain_token, plan_token: the ids there; ``None`` where that output had ended.
        plain_text, plan_text: their text.
        logit_gap: by how much plain preferred its token, in nats (difference of raw logits); NaN
            when the other token is not among plain's likeliest 20 or an output had ended.
        plain_prob: probability plain gave its token, NaN when not known.
        reproduced: plain, run again, took its token again; if not, plain itself is not stable.
        context: the end of the common output before it.
    """

    prompt: str
    position: int
    plain_token: int | None
    plan_token: int | None
    plain_text: str
    plan_text: str
    logit_gap: float
    plain_prob: float
    reproduced: bool
    context: str

    def to_json(self) -> dict[str, Any]:
        """JSON has no NaN: what is not known is ``null``."""
        data = asdict(self)
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in data.items()}


@dataclass(frozen=True)
class Compared:
    """One prompt: tokens of both outputs, how long they agree, and what was drafted."""

    prompt: str
    plain_tokens: int
    plan_tokens: int
    common: int
    drafted: int
    accepted: int

    @property
    def equal(self) -> bool:
        """Both outputs are the same, in length too."""
        return self.common == self.plain_tokens == self.plan_tokens


@dataclass(frozen=True)
class Verification:
    """The outcome.

    Attributes:
        mode: ``exact``, or ``relax=X`` where differences are allowed for.
        results: one per prompt.
        first_difference: of the first prompt that has one.
        tokens_asked: token limit per prompt.
    """

    mode: str
    results: tuple[Compared, ...]
    first_difference: Difference | None
    tokens_asked: int

    @property
    def equal(self) -> bool:
        """No output differs."""
        return all(result.equal for result in self.results)

    @property
    def drafted(self) -> int:
        """Tokens drafted in the plan's run."""
        return sum(result.drafted for result in self.results)

    @property
    def accepted(self) -> int:
        """Drafted tokens that were kept."""
        return sum(result.accepted for result in self.results)

    @property
    def proof(self) -> bool:
        """Equal, and there was speculation that could have made a difference."""
        return self.equal and self.drafted > 0 and self.mode == "exact"

    def to_json(self) -> dict[str, Any]:
        """The ``verify --json`` object (design contract; fields are only ever added)."""
        drafted = self.drafted
        return {
            "equal": self.equal,
            "proof": self.proof,
            "prompts": len(self.results),
            "tokens": sum(result.common for result in self.results),
            "tokens_asked": self.tokens_asked,
            "first_difference": self.first_difference.to_json() if self.first_difference else None,
            "mode": self.mode,
            "drafted": drafted,
            "accepted": self.accepted,
            "acceptance": self.accepted / drafted if drafted else None,
            "results": [{**asdict(r), "equal": r.equal} for r in self.results],
        }


OnStep = Callable[[str, int, int], None]
"""Called with the side's name, prompts done and prompts in all."""


def verify(
    plain: Side,
    plan: Side,
    prompts: Sequence[Prompt],
    *,
    tokens: int,
    chat: bool = True,
    parallel: int = 1,
    relax: float = 0.0,
    on_step: OnStep | None = None,
    on_load: Callable[[str, Progress], None] | None = None,
) -> Verification:
    """Runs both servers one after the other and compares their outputs.

    Args:
        plain: the reference, without a drafter.
        plan: the run to be checked.
        prompts: what to ask.
        tokens: tokens per prompt; the models' end token is not allowed before.
        chat: put prompts into the model's chat template.
        parallel: requests to the plan's server at the same time.
        relax: the plan's tolerance, for the mode.
        on_step: progress of the asking.
        on_load: progress of the loading.

    Raises:
        UserError: a server cannot be started, died or refused.
    """

    def load(side: Side) -> Callable[[Progress], None] | None:
        return None if on_load is None else lambda progress: on_load(side.name, progress)

    with (
        serve(plain.command, ready_path=plain.ready_path, on_progress=load(plain)) as server,
        Client(server.base_url) as client,
    ):
        # Both servers get the same text: templates may differ between builds.
        texts = [client.chat_prompt(p.text) if chat else p.text for p in prompts]
        expected = _ask(client, plain.name, texts, tokens=tokens, parallel=1, step=on_step)
    with (
        serve(plan.command, ready_path=plan.ready_path, on_progress=load(plan)) as server,
        Client(server.base_url) as client,
    ):
        got = _ask(client, plan.name, texts, tokens=tokens, parallel=parallel, step=on_step)
    results = tuple(map(_compare, prompts, expected, got))
    difference = None
    for index, result in enumerate(results):
        if not result.equal:
            with (
                serve(plain.command, ready_path=plain.ready_path, on_progress=load(plain)) as again,
                Client(again.base_url) as client,
            ):
                difference = _explain(client, result, texts[index], expected[index], got[index])
            break
    mode = f"relax={relax:g}" if relax > 0 else "exact"
    return Verification(mode, results, difference, tokens)


def _ask(
    client: Client,
    name: str,
    texts: Sequence[str],
    *,
    tokens: int,
    parallel: int,
    step: OnStep | None,
) -> list[Completion]:
    answers: list[Completion] = []
    if step is not None:
        step(name, 0, len(texts))

    def one(text: str) -> Completion:
        return client.complete(text, tokens, ignore_eos=True)

    # One at a time needs no threads, and Ctrl-C then breaks off the request itself.
    pool = ThreadPoolExecutor(max_workers=parallel) if parallel > 1 else None
    try:
        for answer in pool.map(one, texts) if pool else map(one, texts):
            answers.append(answer)
            if step is not None:
                step(name, len(answers), len(texts))
    finally:
        if pool is not None:
            # Do not wait for answers under way: they end when the server is stopped.
            pool.shutdown(wait=False, cancel_futures=True)
    return answers


def _compare(prompt: Prompt, plain: Completion, plan: Completion) -> Compared:
    common = 0
    for ours, theirs in zip(plain.tokens, plan.tokens, strict=False):
        if ours != theirs:
            break
        common += 1
    return Compared(
        prompt=prompt.name,
        plain_tokens=len(plain.tokens),
        plan_tokens=len(plan.tokens),
        common=common,
        drafted=plan.drafted,
        accepted=plan.accepted,
    )


def _explain(
    client: Client, result: Compared, text: str, plain: Completion, plan: Completion
) -> Difference:
    """Runs plain again up to the difference, this time asking for probabilities."""
    at = result.common
    ours = plain.tokens[at] if at < len(plain.tokens) else None
    theirs = plan.tokens[at] if at < len(plan.tokens) else None
    again = client.complete(text, at + 1, n_probs=_CANDIDATES, ignore_eos=True)
    reproduced = again.tokens[: at + 1] == plain.tokens[: at + 1]
    logprobs = (
        {c.token: c.logprob for c in again.candidates[at]} if at < len(again.candidates) else {}
    )
    mine = logprobs.get(ours, math.nan) if ours is not None else math.nan
    other = logprobs.get(theirs, math.nan) if theirs is not None else math.nan
    before = "".join(client.text_of(token) for token in plain.tokens[max(at - 8, 0) : at])
    return Difference(
        prompt=result.prompt,
        position=at,
        plain_token=ours,
        plan_token=theirs,
        plain_text=client.text_of(ours) if ours is not None else "",
        plan_text=client.text_of(theirs) if theirs is not None else "",
        logit_gap=mine - other,
        plain_prob=math.exp(mine),
        reproduced=reproduced,
        context=before,
    )

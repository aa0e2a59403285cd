"""Decode speed of several engines on the same prompts, in pairs.

Machines drift: clocks, neighbours, temperature. So every prompt goes to each engine in turn, the
order rotates, only one engine generates at a time, and ratios are taken within a prompt before
medians are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

import psutil

from ..backend import Command
from ..launch.client import Client, Completion
from ..launch.server import Progress, serve
from ..planner.cost.pairs import Counts, counts, total
from .prompts import Prompt

_WARM_UP_TOKENS = 8
_RAM_SHARE = 0.85  # of the free memory, for all servers together


@dataclass(frozen=True)
class Engine:
    """One contender.

    Attributes:
        name: for tables, unique.
        model: the target's name.
        draft: the drafter in words, or ``None``.
        command: the server.
        plain: the same server without drafter, whose tokens this one must repeat; ``None`` when
            the engine has no drafter and so is its own reference.
        memory: bytes by device name that the server takes, ``CPU`` being RAM; empty when unknown.
        free: bytes free by device name, other than ``CPU``.
        ready_path: answers 200 once the model is loaded.
        pair: of target and drafter, where what is accepted is worth knowing later.
    """

    name: str
    model: str
    draft: str | None
    command: Command
    plain: Command | None = None
    memory: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    ready_path: str = "/health"
    pair: str | None = None


@dataclass(frozen=True)
class DecodeRun:
    """One engine's result.

    Attributes:
        engine, model, draft: as in :class:`Engine`.
        tok_s: tokens per second of each round (all its tokens by all its decode time).
        ratios: speed by the first engine's on the same prompt of the same round.
        drafted, accepted: drafted tokens and how many were kept, all rounds.
        equal_outputs, outputs: outputs with the same tokens as plain, and outputs in all; 0 of 0
            when not compared.
        counts: drafted and accepted by position; ``None`` where the server does not say.
        context: tokens in the cache, on average while answers were generated.
    """

    engine: str
    model: str
    draft: str | None
    tok_s: tuple[float, ...]
    ratios: tuple[float, ...]
    drafted: int
    accepted: int
    equal_outputs: int
    outputs: int
    counts: Counts | None = None
    context: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """An entry of ``runs`` in ``bench decode --json`` (fields are only ever added)."""
        return {
            "engine": self.engine,
            "model": self.model,
            "draft": self.draft,
            "tok_s_median": median(self.tok_s),
            "tok_s_min": min(self.tok_s),
            "tok_s_max": max(self.tok_s),
            "tok_s": list(self.tok_s),
            "ratio_median": median(self.ratios),
            "ratio_min": min(self.ratios),
            "ratio_max": max(self.ratios),
            "acceptance": self.acceptance,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tokens_equal_to_plain": self.tokens_equal_to_plain,
            "equal_outputs": self.equal_outputs,
            "outputs": self.outputs,
        }

    @property
    def acceptance(self) -> float | None:
        """Accepted by drafted; ``None`` when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_equal_to_plain(self) -> bool | None:
        """Every output has plain's tokens; ``None`` when not compared."""
        return self.equal_outputs == self.outputs if self.outputs else None


@dataclass(frozen=True)
class Step:
    """Progress: ``done`` of ``total`` generations; ``text`` says what is being done."""

    done: int
    total: int
    text: str


Prompts = Sequence[Prompt] | Callable[[int], Sequence[Prompt]]
OnProgress = Callable[[Step], None]
_Identity = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]


def run(
    engines: Sequence[Engine],
    prompts: Prompts,
    tokens: int,
    rounds: int,
    on_progress: OnProgress | None = None,
    *,
    chat: bool = True,
    together: bool | None = None,
    compare: bool = True,
) -> list[DecodeRun]:
    """Measures ``engines`` against each other; the first one is the base of the ratios.

    Args:
        engines: at least one.
        prompts: the same for every round, or a function of the round's number from 0.
        tokens: token limit per prompt; the model may end earlier.
        rounds: how often.
        on_progress: called before each piece of work.
        chat: put prompts into the model's chat template.
        together: keep all servers loaded; by default when they fit. Otherwise each engine is
            loaded anew in each round, still in rotating order.
        compare: run ``plain`` of the engines with drafters, untimed, to compare tokens.

    Raises:
        UserError: a server cannot be started, died or refused.
    """
    bench = _Bench(
        engines, prompts, tokens, rounds, on_progress=on_progress, chat=chat, compare=compare
    )
    if together if together is not None else fits_together(engines):
        bench.together()
    else:
        bench.alternately()
    references = bench.references() if compare else {}
    return [bench.result(engine, references) for engine in engines]


def fits_together(engines: Sequence[Engine]) -> bool:
    """Whether all servers fit into memory at once; without sizes, no."""
    if not all(engine.memory for engine in engines):
        return False
    free = {device: size for engine in engines for device, size in engine.free.items()}
    free["CPU"] = int(psutil.virtual_memory().available * _RAM_SHARE)
    need: dict[str, int] = {}
    for engine in engines:
        for device, size in engine.memory.items():
            need[device] = need.get(device, 0) + size
    return all(size <= free.get(device, 0) for device, size in need.items())


def order(engines: Sequence[Engine], turn: int) -> list[Engine]:
    """The engines as they come in their ``turn``-th turn: everyone is first equally often."""
    first = turn % len(engines)
    return [*engines[first:], *engines[:first]]


class _Bench:
    """The answers as they come in."""

    def __init__(
        self,
        engines: Sequence[Engine],
        prompts: Prompts,
        tokens: int,
        rounds: int,
        *,
        on_progress: OnProgress | None,
        chat: bool,
        compare: bool,
    ) -> None:
        self.engines = engines
        self.rounds = [prompts(n) if callable(prompts) else prompts for n in range(rounds)]
        self.tokens = tokens
        self.on_progress = on_progress
        self.chat = chat
        self.texts: dict[tuple[int, int], str] = {}
        self.answers: dict[str, dict[tuple[int, int], Completion]] = {e.name: {} for e in engines}
        self.done = 0
        runs = len(engines) + (len(self.plain_servers()) if compare else 0)
        self.total = sum(map(len, self.rounds)) * runs

    def tell(self, text: str) -> None:
        if self.on_progress is not None:
            self.on_progress(Step(self.done, self.total, text))

    @contextlib.contextmanager
    def server(self, name: str, command: Command, ready_path: str) -> Iterator[Client]:
        """A loaded and warmed-up server."""

        def loading(progress: Progress) -> None:
            part = f" {progress.fraction:.0%}" if progress.fraction is not None else ""
            self.tell(f"{name}: loading {progress.stage}{part}")

        with (
            serve(command, ready_path=ready_path, on_progress=loading) as server,
            Client(server.base_url) as client,
        ):
            self.tell(f"{name}: warm-up")
            client.complete("Hello", _WARM_UP_TOKENS)
            yield client

    def ask(self, engine: Engine, client: Client, key: tuple[int, int]) -> None:
        prompt = self.rounds[key[0]][key[1]]
        self.tell(f"{engine.name}: round {key[0] + 1}, {prompt.name}")
        if key not in self.texts:
            # One text for all engines: templates may differ between builds.
            self.texts[key] = client.chat_prompt(prompt.text) if self.chat else prompt.text
        self.answers[engine.name][key] = client.complete(self.texts[key], self.tokens)
        self.done += 1

    def together(self) -> None:
        with contextlib.ExitStack() as stack:
            clients = {
                e.name: stack.enter_context(self.server(e.name, e.command, e.ready_path))
                for e in self.engines
            }
            turn = 0
            for number, prompts in enumerate(self.rounds):
                for index in range(len(prompts)):
                    for engine in order(self.engines, turn):
                        self.ask(engine, clients[engine.name], (number, index))
                    turn += 1

    def alternately(self) -> None:
        for number, prompts in enumerate(self.rounds):
            for engine in order(self.engines, number):
                with self.server(engine.name, engine.command, engine.ready_path) as client:
                    for index in range(len(prompts)):
                        self.ask(engine, client, (number, index))

    def plain_servers(self) -> dict[_Identity, Engine]:
        """The plain servers that are not among the engines themselves, each with the first engine
        that is compared with it."""
        timed = {_identity(e.command) for e in self.engines if not e.plain}
        found: dict[_Identity, Engine] = {}
        for engine in self.engines:
            if engine.plain is not None and _identity(engine.plain) not in timed:
                found.setdefault(_identity(engine.plain), engine)
        return found

    def references(self) -> dict[str, dict[tuple[int, int], Completion]]:
        """Plain's answers by engine name; each plain server runs once, or not at all when it is
        one of the engines."""
        known = {_identity(e.command): self.answers[e.name] for e in self.engines if not e.plain}
        for identity, engine in self.plain_servers().items():
            assert engine.plain is not None
            name = f"{engine.name}: plain for comparison"
            answers: dict[tuple[int, int], Completion] = {}
            known[identity] = answers
            with self.server(name, engine.plain, engine.ready_path) as client:
                for key, text in self.texts.items():
                    self.tell(f"{name}, {len(answers) + 1} of {len(self.texts)}")
                    answers[key] = client.complete(text, self.tokens)
                    self.done += 1
        return {e.name: known[_identity(e.plain)] for e in self.engines if e.plain is not None}

    def result(
        self, engine: Engine, references: dict[str, dict[tuple[int, int], Completion]]
    ) -> DecodeRun:
        answers = self.answers[engine.name]
        base = self.answers[self.engines[0].name]
        speeds = []
        for number in range(len(self.rounds)):
            own = [answer for key, answer in answers.items() if key[0] == number]
            spent = sum(answer.decode_ms for answer in own)
            # Weighted by time, which keeps the server's way of counting (the first token of an
            # answer comes with the prompt and is not in the decode time).
            counted = sum(answer.tok_s * answer.decode_ms for answer in own)
            speeds.append(counted / spent if spent else 0.0)
        reference = references.get(engine.name, {})
        return DecodeRun(
            engine=engine.name,
            model=engine.model,
            draft=engine.draft,
            tok_s=tuple(speeds),
            ratios=tuple(
                answer.tok_s / base[key].tok_s if base[key].tok_s else 0.0
                for key, answer in answers.items()
            ),
            drafted=sum(answer.drafted for answer in answers.values()),
            accepted=sum(answer.accepted for answer in answers.values()),
            equal_outputs=sum(answers[key].tokens == r.tokens for key, r in reference.items()),
            outputs=len(reference),
            counts=total(
                counts(answer.timings.get("speculation") or {}, len(answer.tokens))
                for answer in answers.values()
            ),
            context=fmean(
                int(answer.timings.get("prompt_n") or 0) + len(answer.tokens) / 2
                for answer in answers.values()
            ),
        )


def _identity(command: Command) -> _Identity:
    return command.argv, tuple(sorted(command.env.items()))

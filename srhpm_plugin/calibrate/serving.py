"""What a server adds to its passes: a real one, a small model, plain and drafting for itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..backend import Command
from ..errors import UserError
from ..launch.client import Client, Completion
from ..launch.server import serve
from ..plan import Draft, LaunchPlan
from ..plugins import plugins
from . import fit, shapes
from .data import Passes, Serving

_TOKENS = 160
_TIMES = 5
DRAFTED = 3  # per pass: always as many
_START_SECONDS = 60.0


def answers(command: Command) -> list[Completion]:
    """A few answers of a server, after one that is not counted.

    Raises:
        UserError: it does not start, or refuses.
    """
    with (
        serve(command, start_timeout=_START_SECONDS) as server,
        Client(server.base_url, timeout=_START_SECONDS) as client,
    ):
        found = [
            client.complete([5, 7, 11, 13], _TOKENS, ignore_eos=True) for _ in range(_TIMES + 1)
        ]
    return found[1:]


def talk(
    plan: Callable[[Path], LaunchPlan], small: Path, large: Path
) -> tuple[float, float, float]:
    """Milliseconds of a token with few and with many tokens in the vocabulary, and of a round of
    drafting with many.

    Args:
        plan: of a model's file, without drafter.
        small, large: the same model with few and with many tokens in its vocabulary.

    Raises:
        UserError: see :func:`answers`.
    """
    backend = plugins().backend("srhpm")
    few = min(map(_per_token, answers(backend.command(plan(small)))))
    many = min(map(_per_token, answers(backend.command(plan(large)))))
    draft = Draft("draft-simple", large, DRAFTED, DRAFTED, 0.0)
    drafting = replace(plan(large), draft=draft, draft_off_reason=None)
    return few, many, min(map(_cycle, answers(backend.command(drafting))))


def _per_token(answer: Completion) -> float:
    # The first token comes with the prompt: its time is not in the decode time.
    steps = len(answer.tokens) - 1
    if steps < 1 or answer.decode_ms <= 0:
        raise UserError("cannot measure the server", "its answer has no tokens or no time")
    return answer.decode_ms / steps


def _cycle(answer: Completion) -> float:
    """Milliseconds of a round of drafting and verifying."""
    rounds = answer.drafted / DRAFTED
    if rounds < 1:
        raise UserError("cannot measure the server", "it drafted nothing for itself")
    return answer.decode_ms / rounds


def fit_serving(few: float, many: float, cycle: float, passes: Passes) -> Serving:
    """The three costs from the milliseconds of a token, with small and large vocabulary, and of a
    round of drafting. Each takes what the ones before it leave, and none is below zero.

    The output matrix of the large vocabulary (2 MB, in the cache) counts as part of a sample.
    """
    layers = shapes.SHALLOW.layers
    pass_ = {
        m: fit.at(passes.fixed, m) + layers * fit.at(passes.layer, m) for m in (1, 2, DRAFTED + 1)
    }
    thousands = (shapes.TALKER.vocab - shapes.SHALLOW.vocab) / 1000
    sample = max(0.0, (many - few) / thousands)
    step = max(0.0, few - pass_[1] - sample * shapes.SHALLOW.vocab / 1000)
    samples = shapes.TALKER.vocab / 1000
    verify = pass_[DRAFTED + 1] + step + (DRAFTED + 1) * sample * samples
    # The drafter decodes each token; the last one of a round in the first pass of the next.
    drafter = (DRAFTED - 1) * pass_[1] + pass_[2]
    # Its two kinds of passes take turns, so both build their graph anew.
    left = cycle - verify - drafter - 2 * layers * passes.build
    return Serving(step, sample, max(0.0, left / DRAFTED / samples))

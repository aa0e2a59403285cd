"""The demo's steps; the command line hands over options and prints the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..backend import Command
from ..bench import decode
from ..bench.decode import DecodeRun, Engine
from ..bench.prompts import Prompt, round_prompts
from ..errors import UserError
from ..launch.server import Server, serve
from ..native.locate import find_program
from . import models, source
from .ask import Answer, ask
from .steps import Steps

QUESTION = "Explain how a bicycle stays upright."
# The model knows English and little else.
_KINDS = ("prose", "list")


@dataclass(frozen=True)
class Pair:
    """Target and drafter."""

    target: Path
    drafter: Path


def prompts(number: int) -> list[Prompt]:
    """The prompts of a round: new ones each time, of kinds that the model can write."""
    return [prompt for prompt in round_prompts(number) if prompt.name in _KINDS]


def quantizer() -> Path:
    """llama-quantize, and with it the certainty that the server is built.

    Raises:
        UserError: one of them is not.
    """
    found = {name: find_program(name) for name in ("llama-server", "llama-quantize")}
    for name, path in found.items():
        if path is None:
            raise UserError(f"no {name}", "it is not built yet", "type: srhpm-plugin native build")
    program = found["llama-quantize"]
    assert program is not None
    return program


def make_pair(
    size: str, quant: str, draft_quant: str, *, program: Path, threads: int, steps: Steps
) -> Pair:
    """Gets the real model and makes the pair out of it.

    Args:
        size: a name in :data:`models.SIZES`.
        quant: the target's type.
        draft_quant: the drafter's, or ``original``.
        program: llama-quantize.
        threads: for quantizing.
        steps: progress.

    Raises:
        UserError: no network, no space, no such model.
    """
    with steps.step("model") as step:
        small = source.fetch_model(
            on_progress=lambda done, total: step.at(
                f"{done / 1e6:.0f} of {total / 1e6:.0f} MB", done / total
            )
        )
        step.note = _file(small)
    with steps.step("widen") as step:
        wide = models.wide_model(
            small, size, quant, program=program, threads=threads, on_part=step.at
        )
        step.note = _file(wide.path, wide.cached)
    with steps.step("drafter") as step:
        drafter = models.drafter(
            small, draft_quant, program=program, threads=threads, on_part=step.at
        )
        step.note = _file(drafter.path, drafter.cached and drafter.path != small)
    return Pair(wide.path, drafter.path)


def _file(path: Path, cached: bool = False) -> str:
    before = ", made before" if cached else ""
    return f"{path.name}, {path.stat().st_size / 1e6:.0f} MB{before}"


@contextmanager
def running(command: Command, ready: str, steps: Steps) -> Iterator[Server]:
    """The plan's server, stopped on leaving.

    Args:
        command: what to start.
        ready: the path that answers 200 once it is loaded.
        steps: progress.

    Raises:
        UserError: it does not start.
    """
    with ExitStack() as stack:
        with steps.step("launch") as step:
            server = stack.enter_context(
                serve(
                    command,
                    ready_path=ready,
                    on_progress=lambda p: step.at(f"loading {p.stage}", p.fraction),
                )
            )
            step.note = f"{server.base_url}/v1"
        yield server


def answer(server: Server, tokens: int, on_text: Callable[[str], None]) -> Answer:
    """Puts :data:`QUESTION` to the server.

    Raises:
        UserError: it refused or died.
    """
    try:
        return ask(server.base_url, QUESTION, tokens, on_text)
    except UserError:
        server.check(grace=1.0)  # its end says more than the broken connection
        raise


def compare(engines: list[Engine], tokens: int, rounds: int, steps: Steps) -> list[DecodeRun]:
    """Paired rounds of all engines.

    Raises:
        UserError: a server fails.
    """
    with steps.step("compare") as step:
        runs = decode.run(
            engines,
            prompts,
            tokens,
            rounds,
            lambda s: step.at(s.text, s.done / s.total if s.total else None),
        )
        step.note = f"{rounds} rounds of {len(prompts(0))} prompts, {tokens} tokens each"
    return runs

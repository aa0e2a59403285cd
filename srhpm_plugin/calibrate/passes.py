"""Passes of small models, run by ``llama-bench``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bench.kernels import environment
from ..errors import UserError
from . import fit, shapes
from .data import WIDTHS, Attention, Passes

_AGAIN = "build it again: srhpm-plugin native build --force"
_REPETITIONS = 40
_LONG_REPETITIONS = 7
_SECONDS = 120.0
_NO_REUSE = "LLAMA_GRAPH_REUSE_DISABLE"  # upstream's, for measuring


@dataclass(frozen=True)
class Bench:
    """A ``llama-bench`` and the environment in which a server of the engine runs."""

    program: Path
    env: Mapping[str, str]
    threads: int

    def run(
        self,
        model: Path,
        widths: Sequence[int],
        depths: Sequence[int],
        repetitions: int,
        **env: str,
    ) -> dict[tuple[int, int], float]:
        """Milliseconds of passes over M tokens behind so many others: by (M, depth), the lower
        quartile, as what comes in between only adds.

        Raises:
            UserError: it failed, or said what is no result.
        """
        argv = [
            str(self.program),
            "-m",
            str(model),
            "-n",
            "0",
            "-o",
            "json",
            "-ngl",
            "0",
            "-fa",
            "1",
        ]
        argv += ["-p", ",".join(map(str, widths)), "-d", ",".join(map(str, depths))]
        argv += ["-r", str(repetitions), "-t", str(self.threads)]
        what = f"cannot measure passes with {self.program}"
        environ = environment(self.env.get("SRHPM_KERNELS", "speed")) | dict(self.env) | env
        try:
            done = subprocess.run(
                argv,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_SECONDS,
            )
        except OSError as error:
            raise UserError(what, error.strerror or str(error), _AGAIN) from None
        except subprocess.TimeoutExpired:
            raise UserError(what, f"it did not end within {_SECONDS:.0f} s", _AGAIN) from None
        if done.returncode:
            said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
            raise UserError(what, f"exit code {done.returncode}: {said[:200]}", _AGAIN)
        try:
            found = {
                (entry["n_prompt"], entry["n_depth"]): quartile(entry["samples_ns"]) / 1e6
                for entry in json.loads(done.stdout)
            }
            return {(m, depth): found[m, depth] for m in widths for depth in depths}
        except (ValueError, KeyError, TypeError):
            raise UserError(what, "what it says is no result", _AGAIN) from None


def quartile(times: Sequence[float]) -> float:
    """The least value that a quarter of them do not exceed."""
    return sorted(times)[(len(times) - 1) // 4]


Samples = dict[tuple[str, int, int], float]
"""Milliseconds by what was run (a shape's name, ``anew`` with the graph built each time), M and
depth."""

ANEW = "anew"


def samples(bench: Bench, shallow: Path, deep: Path, looker: Path) -> Samples:
    """One round of everything that :func:`overhead` and :func:`attention` are made of.

    Raises:
        UserError: see :meth:`Bench.run`.
    """
    far = (0, shapes.LOOKER_CTX)
    runs = {
        shapes.SHALLOW.name: bench.run(shallow, WIDTHS, (0,), _REPETITIONS),
        shapes.DEEP.name: bench.run(deep, WIDTHS, (0,), _REPETITIONS),
        ANEW: bench.run(deep, (1,), (0,), _REPETITIONS, **{_NO_REUSE: "1"}),
        shapes.LOOKER.name: bench.run(looker, WIDTHS, far, _LONG_REPETITIONS),
    }
    return {(name, *key): ms for name, found in runs.items() for key, ms in found.items()}


def least(rounds: Sequence[Samples]) -> Samples:
    """Of rounds at different moments the best of each: while another program has one of the
    processors, threads that wait for each other wait for it too, for as long as it runs."""
    return {key: min(found[key] for found in rounds) for key in rounds[0]}


def overhead(found: Samples) -> Passes:
    """What passes cost beside weights and attention."""
    few = {m: found[shapes.SHALLOW.name, m, 0] for m in WIDTHS}
    many = {m: found[shapes.DEEP.name, m, 0] for m in WIDTHS}
    return fit.passes(
        fit.rising(few),
        fit.rising(many),
        found[ANEW, 1, 0],
        shallow_layers=shapes.SHALLOW.layers,
        deep_layers=shapes.DEEP.layers,
    )


def attention(found: Samples) -> Attention:
    """What attention costs by context."""
    far, shape = shapes.LOOKER_CTX, shapes.LOOKER
    slopes = {
        m: max(0.0, found[shape.name, m, far] - found[shape.name, m, 0]) / far for m in WIDTHS
    }
    return fit.attention(
        slopes,
        heads=shape.heads,
        heads_kv=shape.heads_kv,
        length=shape.length,
        layers=shape.layers,
    )

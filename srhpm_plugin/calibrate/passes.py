"""Passes of small models, run by ``llama-bench``."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..bench.kernels import environment
from ..errors import UserError
from . import fit, shapes
from .data import WIDTHS, Attention, Passes

_AGAIN = "build it again: srhpm-plugin native build --force"
_REPETITIONS = 15
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
        """Median milliseconds of passes over M tokens behind so many others: by (M, depth).

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
                (entry["n_prompt"], entry["n_depth"]): median(entry["samples_ns"]) / 1e6
                for entry in json.loads(done.stdout)
            }
            return {(m, depth): found[m, depth] for m in widths for depth in depths}
        except (ValueError, KeyError, TypeError):
            raise UserError(what, "what it says is no result", _AGAIN) from None


def overhead(bench: Bench, shallow: Path, deep: Path) -> Passes:
    """What passes cost beside weights and attention.

    Raises:
        UserError: see :meth:`Bench.run`.
    """
    few = bench.run(shallow, WIDTHS, (0,), _REPETITIONS)
    many = bench.run(deep, WIDTHS, (0,), _REPETITIONS)
    anew = bench.run(deep, (1,), (0,), _REPETITIONS, **{_NO_REUSE: "1"})
    return fit.passes(
        {m: few[m, 0] for m in WIDTHS},
        fit.rising({m: many[m, 0] for m in WIDTHS}),
        anew[1, 0],
        shallow_layers=shapes.SHALLOW.layers,
        deep_layers=shapes.DEEP.layers,
    )


def attention(bench: Bench, looker: Path) -> Attention:
    """What attention costs by context.

    Raises:
        UserError: see :meth:`Bench.run`.
    """
    far = shapes.LOOKER_CTX
    found = bench.run(looker, WIDTHS, (0, far), _LONG_REPETITIONS)
    shape = shapes.LOOKER
    return fit.attention(
        {m: max(0.0, found[m, far] - found[m, 0]) / far for m in WIDTHS},
        heads=shape.heads,
        heads_kv=shape.heads_kv,
        length=shape.length,
        layers=shape.layers,
    )

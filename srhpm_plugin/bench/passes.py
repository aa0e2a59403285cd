"""Passes of whole models over M tokens, measured by ``llama-bench``: ours and stock in turn.

``llama-bench`` asks a pass for the logits of its last token only; a pass that verifies a draft
multiplies by the output matrix for all M.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..model import ModelInfo
from .kernels import environment
from .series import OnStep, Series

# Loading a model takes longer than a few passes, so each load is used for several.
_REPETITIONS = 3


@dataclass(frozen=True)
class Bench:
    """A ``llama-bench`` and what its ``SRHPM_KERNELS`` is."""

    program: Path
    kernels: str


def measure(
    models: Sequence[ModelInfo],
    ours: Bench,
    stock: Bench,
    ms: Sequence[int],
    threads: int,
    rounds: int,
    isa: str | None = None,
    on_step: OnStep | None = None,
) -> list[Series]:
    """Measures each model in ``rounds`` rounds of both programs, each first in every other.

    Raises:
        UserError: a program failed or said what is no result.
    """
    series = []
    for number, model in enumerate(models):
        samples: dict[tuple[Bench, int], list[float]] = {}
        for turn in range(rounds):
            for which, bench in enumerate((ours, stock) if turn % 2 == 0 else (stock, ours)):
                if on_step:
                    done = 2 * (number * rounds + turn) + which
                    side = "srhpm" if bench is ours else "stock"
                    text = f"{model.path.name}: round {turn + 1} of {rounds}, {side}"
                    on_step(done, 2 * rounds * len(models), text)
                for m, taken in _run(bench, model, ms, threads).items():
                    samples.setdefault((bench, m), []).extend(taken)
        # Which experts a pass over several tokens reads depends on the tokens.
        nbytes = None if model.n_expert else _bytes(model)
        series += [
            Series(
                type=quantization(model),
                model=model.path.name,
                isa=isa,
                rows=None,
                cols=None,
                m=m,
                ms=tuple(samples[ours, m]),
                stock_ms=tuple(samples[stock, m]),
                nbytes=nbytes,
                read_ms=(),
                bit_identical=None,
                stock_bit_identical=None,
                stock=str(stock.program),
            )
            for m in ms
        ]
    return series


def quantization(model: ModelInfo) -> str:
    """The name of a model's quantization, e.g. ``Q4_K_M``: the header's, else the type that most
    bytes have."""
    from gguf import LlamaFileType

    try:
        name: str = LlamaFileType(int(model.metadata["general.file_type"])).name
        return name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except (KeyError, ValueError):
        return next(iter(model.quant_mix), "unknown")


def _bytes(model: ModelInfo) -> int:
    from ..planner.weights import bytes_per_token

    return bytes_per_token(model, packed=True)


def _run(bench: Bench, model: ModelInfo, ms: Sequence[int], threads: int) -> dict[int, list[float]]:
    """Milliseconds of the passes over each M."""
    argv = [str(bench.program), "-m", str(model.path), "-n", "0", "-p", ",".join(map(str, ms))]
    argv += ["-r", str(_REPETITIONS), "-t", str(threads), "-ngl", "0", "-o", "json"]
    what = f"cannot measure {model.path} with {bench.program}"
    try:
        done = subprocess.run(
            argv,
            env=environment(bench.kernels),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise UserError(what, error.strerror or str(error), "check the program") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1].strip()
        why = f"exit code {done.returncode}: {said[:200]}"
        raise UserError(what, why, "check the model: srhpm-plugin plan MODEL")
    try:
        return _samples(json.loads(done.stdout), ms)
    except (ValueError, KeyError, TypeError):
        raise UserError(
            what, "what it says is no result", "name another llama-bench with --against"
        ) from None


def _samples(entries: list[dict[str, Any]], ms: Sequence[int]) -> dict[int, list[float]]:
    taken = {
        entry["n_prompt"]: [nanoseconds / 1e6 for nanoseconds in entry["samples_ns"]]
        for entry in entries
        if entry["n_gen"] == 0
    }
    if any(len(taken[m]) != _REPETITIONS for m in ms):
        raise ValueError("samples are missing")
    return {m: taken[m] for m in ms}

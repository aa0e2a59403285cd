"""How far a model's probabilities are from another's: llama-perplexity over a text of ours."""

from __future__ import annotations

import os
import re
import subprocess
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from .text import TEXT

# The later half of each piece counts: about 900 tokens of the text.
_CONTEXT = 256
_PIECE = re.compile(r"\[(\d+)\]|^ +(\d+) +\d+\.\d+ ±", re.MULTILINE)
_PIECES = re.compile(r"calculating perplexity over (\d+) chunks|(\d+) chunks")
_MEAN = re.compile(r"Mean +KLD: +(-?[0-9.]+|-?nan) ± +([0-9.]+|nan)")
_SAME = re.compile(r"Same top p: +([0-9.]+)")

OnPiece = Callable[[int], None]
"""Called with the pieces of the text that are done."""


@dataclass(frozen=True)
class Divergence:
    """Kullback-Leibler divergence of a model's predictions from those of the source.

    Attributes:
        mean, error: nats per token, and the mean's standard error.
        same_top: share of tokens at which both prefer the same one.
    """

    mean: float
    error: float
    same_top: float


class Comparison:
    """The source's predictions, against which other files are held.

    Args:
        program: llama-perplexity.
        folder: where the text and the source's predictions are kept for a while.
        threads: at work.
    """

    def __init__(self, program: Path, folder: Path, threads: int) -> None:
        self._program = program
        self._threads = threads
        self._text = folder / "text.txt"
        self._base = folder / "predictions"
        self._text.write_text(TEXT, encoding="utf-8")

    def take(self, source: Path, on_piece: OnPiece | None = None) -> None:
        """Keeps the predictions of ``source``.

        Raises:
            UserError: the program failed.
        """
        self._run(source, (), on_piece)

    def of(self, model: Path, on_piece: OnPiece | None = None) -> Divergence:
        """The divergence of ``model`` from the source.

        Raises:
            UserError: the program failed, or said no figures.
        """
        out = self._run(model, ("--kl-divergence",), on_piece)
        mean, same = _MEAN.search(out), _SAME.search(out)
        if not mean or "nan" in mean[0] or not same:
            raise UserError(
                f"cannot compare {model.name} with its source",
                "llama-perplexity gave no divergence",
                "give --no-measure",
            )
        # A model held against itself comes out a hair below zero.
        return Divergence(max(0.0, float(mean[1])), float(mean[2]), float(same[1]) / 100)

    def _run(self, model: Path, more: tuple[str, ...], on_piece: OnPiece | None) -> str:
        argv = [str(self._program), "-m", str(model), "-f", str(self._text)]
        argv += ["-c", str(_CONTEXT), "-t", str(self._threads), "-b", str(_CONTEXT), "-ngl", "0"]
        argv += ["--kl-divergence-base", str(self._base), *more]
        env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_ARG_")}
        # Upstream's code for both: what is compared is the weights alone.
        env |= {"SRHPM_KERNELS": "off", "SRHPM_EXACT": "0"}
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=env,
            )
        except OSError as error:
            raise UserError(
                f"cannot run {self._program}",
                error.strerror or str(error),
                "type: srhpm-plugin native build",
            ) from error
        said = ""
        try:
            assert process.stdout is not None
            while chunk := process.stdout.read1(4096):  # type: ignore[attr-defined]
                said += chunk.decode("utf-8", "replace")
                done = [int(m[1] or m[2]) for m in _PIECE.finditer(said)]
                if done and on_piece:
                    on_piece(done[-1])
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code:
            last = deque((line for line in said.splitlines() if line.strip()), maxlen=1)
            why = last[-1].strip() if last else f"it ended with code {code} and no message"
            raise UserError(f"llama-perplexity failed on {model.name}", why, "give --no-measure")
        return said

"""Runs ``bench-kernels``, which measures single matrix products, and reads what it says."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any

from ..errors import UserError
from .series import OnStep, Series

_AGAIN = "build it again: srhpm-plugin native build --force"


@dataclass(frozen=True)
class Wanted:
    """What to measure; ``None`` is the program's choice.

    Attributes:
        types: weight types, in any case of letters; empty for all that have kernels.
        ms: tokens per pass.
        rows, cols: of the matrices.
        threads: as many for both sides and for reading.
        rounds: how often.
        mib: weights per pass, MiB; by default several times what the caches hold.
    """

    ms: Sequence[int]
    rows: int
    cols: int
    threads: int
    rounds: int
    types: Sequence[str] = ()
    mib: int | None = None

    def argv(self) -> list[str]:
        """As the program's options."""
        options: dict[str, object] = {
            "--m": ",".join(map(str, self.ms)),
            "--rows": self.rows,
            "--cols": self.cols,
            "--threads": self.threads,
            "--rounds": self.rounds,
        }
        if self.types:
            options["--types"] = ",".join(self.types)
        if self.mib is not None:
            options["--mib"] = self.mib
        return [str(word) for pair in options.items() for word in pair]


def measure(program: Path, wanted: Wanted, on_step: OnStep | None = None) -> list[Series]:
    """Measures in the program's order: types one after the other, everything else in turn.

    Raises:
        UserError: it refused, failed, or said what is no measurement.
    """
    heard = _Heard()
    with lines(program, wanted.argv()) as said:
        for line in said:
            try:
                heard.take(json.loads(line))
                if on_step:
                    on_step(heard.done, heard.total, heard.doing)
            except (ValueError, KeyError, TypeError):
                raise no_measurement(program, line) from None
    try:
        return heard.series()
    except (ValueError, KeyError, TypeError):
        raise no_measurement(program, "it ended early") from None


def instruction_set(program: Path) -> str:
    """The instruction set that our kernels use on this machine.

    Raises:
        UserError: as :func:`measure`.
    """
    with lines(program, ["--info"]) as said:
        text = "".join(said)
    try:
        return str(json.loads(text)["isa"])
    except (ValueError, KeyError, TypeError):
        raise no_measurement(program, text) from None


def no_measurement(program: Path, line: str) -> UserError:
    """The program said something else than a result."""
    said = line.strip()[:80]
    return UserError(f"cannot measure with {program}", f"what it says is no result: {said}", _AGAIN)


def environment(kernels: str) -> dict[str, str]:
    """Of a measurement: nothing that a shell happens to set changes what runs, but for the
    instruction set, which is ours to compare."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SRHPM_", "LLAMA_ARG_")) or name == "SRHPM_ISA"
    }
    return env | {"SRHPM_KERNELS": kernels}


@contextmanager
def lines(program: Path, argv: Sequence[str], kernels: str = "speed") -> Iterator[IO[str]]:
    """The program's output as it comes; it does not outlive the block.

    Raises:
        UserError: it does not run, or failed.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        try:
            process = subprocess.Popen(
                [str(program), *argv],
                env=environment(kernels),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise UserError(f"cannot run {program}", error.strerror or str(error), _AGAIN) from None
        with process:
            assert process.stdout is not None
            try:
                yield process.stdout
                code = process.wait()
            except BaseException:
                process.kill()
                raise
        if code:
            errors.seek(0)
            said = (errors.read().strip().splitlines() or ["it said nothing"])[-1]
            refused = said.startswith("error: ")
            raise UserError(
                "cannot measure the kernels",
                said.removeprefix("error: ") if refused else f"exit code {code}: {said[:200]}",
                "see: srhpm-plugin bench kernels --help" if refused else _AGAIN,
            )


@dataclass
class _Heard:
    """What the program has said so far."""

    start: dict[str, Any] = field(default_factory=dict)
    types: dict[str, dict[str, Any]] = field(default_factory=dict)
    columns: dict[tuple[str, int], tuple[bool, bool]] = field(default_factory=dict)
    # (type, engine, m or distance) -> milliseconds by round
    samples: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)
    done: int = 0
    total: int = 1
    doing: str = ""

    def take(self, event: dict[str, Any]) -> None:
        kind, name = event["event"], event.get("type", "")
        if kind == "start":
            self.start = event
            passes = event["rounds"] * (2 * len(event["m"]) + event["reads"])
            self.total = max(1, len(event["types"]) * passes)
        elif kind == "type":
            self.types[name] = event
            self.doing = f"{name}: preparing weights"
        elif kind == "columns":
            self.columns[name, event["m"]] = (event["ours"], event["stock"])
        elif kind == "sample":
            which = event["ahead"] if event["engine"] == "read" else event["m"]
            taken = self.samples.setdefault((name, event["engine"], which), [])
            taken.append(float(event["ms"]))
            self.done += 1
            self.doing = f"{name}: round {event['round'] + 1} of {self.start['rounds']}"
        else:
            raise ValueError(kind)

    def series(self) -> list[Series]:
        return [self._series(name, m) for name in self.start["types"] for m in self.start["m"]]

    def _series(self, name: str, m: int) -> Series:
        ours, stock = self.samples[name, "ours", m], self.samples[name, "stock", m]
        if len(ours) != self.start["rounds"] or len(stock) != len(ours):
            raise ValueError("not all rounds were taken")
        reads = [taken for key, taken in self.samples.items() if key[:2] == (name, "read")]
        same = self.columns[name, m]
        return Series(
            type=name,
            model=None,
            isa=self.start["isa"],
            rows=self.start["rows"],
            cols=self.start["cols"],
            m=m,
            ms=tuple(ours),
            stock_ms=tuple(stock),
            nbytes=self.types[name]["packed_bytes"],
            # Of the ways to read, the one that is best here: the limit is what can be done.
            read_ms=tuple(min(reads, key=median)),
            bit_identical=same[0],
            stock_bit_identical=same[1],
            stock=self.types[name]["stock_buffer"],
        )

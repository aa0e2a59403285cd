"""Running a build step: output to a log, progress to the caller, the first error on failure."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError

# A status prefix that no compiler prints by chance.
NINJA_STATUS = "[%f/%t] "
_STEP = re.compile(r"^\[(\d+)/(\d+)\] ")
_ERROR = re.compile(
    r"(?:: (?:fatal )?error[: ])|(?:^CMake Error)|(?:^ninja: error)"
    r"|(?:undefined reference)|(?:LNK\d+)"
)
_CAUSES = (
    ("No space left on device", "the disk is full", "free some space"),
    ("Killed signal terminated program", "the compiler ran out of memory", "use --jobs 1"),
    ("out of memory", "the compiler ran out of memory", "use --jobs 1"),
)


def run(
    argv: Sequence[str],
    log: Path,
    env: dict[str, str],
    what: str,
    on_step: Callable[[int, int], None] | None = None,
) -> None:
    """Runs a command, appending its output to ``log``; ``on_step(done, total)`` per ninja step.

    Raises:
        UserError: the command failed; names the first error and the log.
    """
    first_error = cause = None
    # line-buffered, for people who follow the log
    with log.open("a", buffering=1, encoding="utf-8", errors="replace") as file:
        file.write(f"$ {' '.join(argv)}\n")
        file.flush()
        process = subprocess.Popen(
            list(argv),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                file.write(line)
                if on_step and (step := _STEP.match(line)):
                    on_step(int(step[1]), int(step[2]))
                if first_error is None and _ERROR.search(line):
                    first_error = line.strip()
                cause = cause or next((c for c in _CAUSES if c[0] in line), None)
            code = process.wait()
        except BaseException:
            # Ctrl-C reaches the build too; let it end its own way so that no half-written object
            # stays, then pass the interrupt on.
            process.terminate()
            process.wait()
            raise
    if code == 0:
        return
    if cause:
        raise UserError(
            f"{what} failed", f"{cause[1]} (log: {log})", f"{cause[2]}, then run it again"
        )
    why = first_error or f"exit code {code}"
    raise UserError(f"{what} failed", f"{why} (log: {log})", "mend that, then run it again")

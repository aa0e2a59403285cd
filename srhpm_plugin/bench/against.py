"""Whether a program that somebody names is what it is to be, before minutes are spent on it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from ..backend import Command
from ..errors import UserError
from ..launch.prepare import child_env
from ..machine.gpus import bounded_output

_SECONDS = 60.0  # the first start after a driver update may compile device code
_HELP_BYTES = 1 << 20
# Options by which llama.cpp's programs are told apart: a plan always gives the first two, others
# lack the second; only llama-bench repeats.
_OPTIONS = {
    "llama-server": ("--ctx-size", "--port"),
    "llama-bench": ("--n-prompt", "--repetitions"),
}


def require_llama_server(program: Path) -> None:
    """Asks ``program`` for its options.

    Raises:
        UserError: it is no program, does not start, or is another one.
    """
    _require("llama-server", program)


def require_llama_bench(program: Path) -> None:
    """As :func:`require_llama_server`."""
    _require("llama-bench", program)


def _require(name: str, program: Path) -> None:
    why = _unfit(program, name)
    if why:
        do = f"name a {name} program with --against, or leave it out"
        raise UserError(f"cannot measure against {program}", why, do)


def _unfit(program: Path, name: str) -> str | None:
    if program.is_dir():
        return "it is a folder"
    found = shutil.which(str(program))
    if found is None:
        return "it is no program"
    try:
        env = child_env(Command((), {}), None)
        code, text = bounded_output([found, "--help"], env, _SECONDS, _HELP_BYTES)
    except subprocess.TimeoutExpired:
        return f"it is no {name}: --help did not end within {_SECONDS:.0f} s"
    except OSError as error:
        return f"it cannot be run ({error.strerror or error})"
    if all(option in text for option in _OPTIONS[name]):
        return None
    if code:
        lines = text.strip().splitlines() or ["no output"]
        return f"it does not start (exit code {code}: {lines[-1].strip()[:200]})"
    return f"it is no {name}: its --help does not name {' and '.join(_OPTIONS[name])}"

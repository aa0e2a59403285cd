"""Whether a program that somebody names is a llama-server, before minutes are spent on it."""

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
# Options that a plan always gives; llama.cpp's other programs lack the second.
_OPTIONS = ("--ctx-size", "--port")
_DO = "name a llama-server program with --against, or leave it out"


def require_llama_server(program: Path) -> None:
    """Asks ``program`` for its options.

    Raises:
        UserError: it is no program, does not start, or is another one.
    """
    why = _unfit(program)
    if why:
        raise UserError(f"cannot measure against {program}", why, _DO)


def _unfit(program: Path) -> str | None:
    if program.is_dir():
        return "it is a folder"
    found = shutil.which(str(program))
    if found is None:
        return "it is no program"
    try:
        env = child_env(Command((), {}), None)
        code, text = bounded_output([found, "--help"], env, _SECONDS, _HELP_BYTES)
    except subprocess.TimeoutExpired:
        return f"it is no llama-server: --help did not end within {_SECONDS:.0f} s"
    except OSError as error:
        return f"it cannot be run ({error.strerror or error})"
    if all(option in text for option in _OPTIONS):
        return None
    if code:
        lines = text.strip().splitlines() or ["no output"]
        return f"it does not start (exit code {code}: {lines[-1].strip()[:200]})"
    return f"it is no llama-server: its --help does not name {' and '.join(_OPTIONS)}"

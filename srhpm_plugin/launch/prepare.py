"""Before a start: what a command line loads, whether it is there, and the environment it gets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..backend import Command
from ..errors import UserError
from ..files import not_a_file

_MODEL_FLAGS = {
    "-m": "model",
    "--model": "model",
    "-md": "drafter",
    "--model-draft": "drafter",
    "--spec-draft-model": "drafter",
    "-mm": "projector",
    "--mmproj": "projector",
}


def ignored_variables() -> list[str]:
    """Names in our environment that a launch leaves out: they would change the server behind the
    plan's back."""
    return sorted(name for name in os.environ if _ignored(name))


def _ignored(name: str) -> bool:
    return name.startswith("LLAMA_ARG_") or name == "LLAMA_API_KEY"


def child_env(command: Command, api_key: str | None) -> dict[str, str]:
    """The server's environment. The key goes here and not into ``argv``, which all users see."""
    env = {name: value for name, value in os.environ.items() if not _ignored(name)}
    # Stock answers every web page that asks; only pages of this machine should be.
    env["LLAMA_ARG_CORS_ORIGINS"] = "localhost"
    env.update(command.env)
    if api_key is not None:
        env["LLAMA_API_KEY"] = api_key
    return env


def model_files(command: Command) -> Mapping[str, Path]:
    """What the command line loads, by stage."""
    files: dict[str, Path] = {}
    for flag, value in zip(command.argv, command.argv[1:], strict=False):
        if flag in _MODEL_FLAGS:
            files[_MODEL_FLAGS[flag]] = Path(value)
    return files


def check_command(command: Command) -> str:
    """The program's name for messages.

    Raises:
        UserError: the program or a file it is to load is missing.
    """
    program = command.argv[0]
    if shutil.which(program) is None:
        why = "not a program that can be run" if Path(program).exists() else "no such file"
        raise UserError(f"cannot run {program}", why, "build it: srhpm-plugin native build")
    for role, path in model_files(command).items():
        missing = not_a_file(path)
        if missing:
            raise UserError(f"cannot load {role} {path}", missing, "check the path")
    return Path(program).stem

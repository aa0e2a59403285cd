"""Where llama-swap's configuration is: wherever its user put it.

Facts: the flag ``-config`` (``--config``) names it and has no default; ``scripts/install.sh`` puts
it to ``/usr/share/llama-swap/config.yaml`` for a service that runs as ``llama-swap``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from srhpm_plugin.files import expand
from srhpm_plugin.said import said_version

_SERVICE = Path("/usr/share/llama-swap/config.yaml")
_NAMES = ("config.yaml", "config.yml", "llama-swap.yaml", "llama-swap.yml")


def configurations(path: Path | None) -> Iterator[Path]:
    """Configuration files, each once, links followed.

    Args:
        path: only this one, or what a folder has under a usual name.
    """
    seen: set[Path] = set()
    for file in _named(path) if path else _usual():
        try:
            real = file.resolve()
            here = real.is_file()
        except (OSError, RuntimeError, ValueError):
            continue
        if here and real not in seen:
            seen.add(real)
            yield real


def _named(path: Path) -> Iterator[Path]:
    path = expand(path).absolute()
    yield path
    yield from (path / name for name in _NAMES)


def _usual() -> Iterator[Path]:
    yield from _running()
    yield _SERVICE
    folder = Path.home() / ".config" / "llama-swap"
    yield from (folder / name for name in _NAMES)


def _running() -> Iterator[Path]:
    """What the llama-swap that run now were started with."""
    for process in psutil.process_iter(["name", "cmdline", "cwd"]):
        if not (process.info["name"] or "").lower().startswith("llama-swap"):
            continue
        named = config_of(process.info["cmdline"] or ())
        if named and "\0" not in named:
            yield Path(process.info["cwd"] or "/") / named


def config_of(arguments: Sequence[str]) -> str | None:
    """The value of ``-config`` in a command line, in the forms that Go's flags have."""
    for i, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in ("-config", "--config"):
            return value if equals else arguments[i + 1] if i + 1 < len(arguments) else None
    return None


def version() -> str | None:
    """Of the llama-swap on the ``PATH`` (``llama-swap.go``); one that somebody built has none."""
    said = said_version(shutil.which("llama-swap"), r"^version: (\S+)", "-version")
    return None if said in ("0", "local") else said


def user_of(file: Path) -> str | None:
    """The account of the service, where the file is the service's."""
    if sys.platform != "win32" and file == _SERVICE:
        import pwd

        with suppress(KeyError):
            return pwd.getpwnam("llama-swap").pw_name
    return None

"""Where state lives: platformdirs' folders, or all of it below ``SRHPM_HOME``."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import platformdirs

from .errors import UserError
from .files import expand

_APP = "srhpm-plugin"


def _folder(kind: str, default: str) -> Path:
    home = os.environ.get("SRHPM_HOME")
    return expand(home).absolute() / kind if home else Path(default)


def data_dir() -> Path:
    """Built servers, journals, our own models. Not created by this call."""
    return _folder("data", platformdirs.user_data_dir(_APP, appauthor=False))


def cache_dir() -> Path:
    """Whatever can be made again: sources, build trees, calibration. Not created by this call."""
    return _folder("cache", platformdirs.user_cache_dir(_APP, appauthor=False))


def config_dir() -> Path:
    """What the user writes. Not created by this call."""
    return _folder("config", platformdirs.user_config_dir(_APP, appauthor=False))


def setting(variable: str) -> str:
    """The command that names another folder in a variable of the environment."""
    return f"$env:{variable} = 'FOLDER'" if sys.platform == "win32" else f"export {variable}=FOLDER"


def move() -> str:
    """The command that moves our state to another folder."""
    return setting("SRHPM_HOME")


def unusable(folder: Path) -> str | None:
    """Why nothing can be written below ``folder``, which need not be there; ``None`` if it can."""
    existing = next((p for p in (folder, *folder.parents) if os.path.lexists(p)), folder)
    if not existing.is_dir():
        return f"{existing} is no folder"
    try:
        # Asking for the rights would not do: root has them all, on read-only disks too.
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return f"nothing can be written to {existing} ({why})"
    return None


def require_usable() -> None:
    """Makes sure that state can be kept.

    Raises:
        UserError: it cannot; names what is in the way.
    """
    named = os.environ.get("SRHPM_HOME")
    for folder in (data_dir(), cache_dir()):
        why = unusable(folder)
        if why:
            what = f"cannot use SRHPM_HOME={named}" if named else f"cannot use {folder}"
            raise UserError(what, why, f"name another folder: {move()}")

"""Names of files as people type them, and what stands in the way of reading one."""

from __future__ import annotations

import stat
from pathlib import Path

NO_SUCH_FILE = "there is no such file"
_KINDS = (
    (stat.S_ISDIR, "it is a folder"),
    (stat.S_ISCHR, "it is a device, no regular file"),
    (stat.S_ISBLK, "it is a device, no regular file"),
    (stat.S_ISFIFO, "it is a pipe, no regular file"),
    (stat.S_ISSOCK, "it is a socket, no regular file"),
)


def expand(text: str | Path) -> Path:
    """``text`` as a path, its ``~`` replaced; one that names nobody's home stays as it is."""
    path = Path(text)
    try:
        return path.expanduser()
    except RuntimeError:
        return path


def not_a_file(text: str | Path) -> str | None:
    """Why there is no regular file of this name, in words; ``None`` if there is one."""
    if not str(text).strip():
        return "the name is empty"
    try:
        mode = expand(text).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return NO_SUCH_FILE
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        return ((error.strerror if isinstance(error, OSError) else None) or str(error)).lower()
    if stat.S_ISREG(mode):
        return None
    return next((why for is_kind, why in _KINDS if is_kind(mode)), "it is no regular file")

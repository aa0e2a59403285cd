"""Small JSON files of the drop-in: private, replaced as a whole, and whatever is damaged counts as
not there. Only the standard library: it is on the way of every start."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_LIMIT = 1 << 20


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when it is missing, damaged or no object."""
    try:
        with path.open("rb") as file:
            data = json.loads(file.read(_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def write_json(path: Path, data: object) -> bool:
    """Writes for the owner only, through a rename. False: it cannot be written, which is never
    worth failing a start for (the host may run as another user)."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "wb") as stream:
            stream.write(json.dumps(data).encode())
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink()
        return False
    return True


def keep_newest(folder: Path, suffix: str, most: int) -> Iterable[Path]:
    """Removes the oldest files called ``*suffix`` beyond ``most``; yields those removed."""
    try:
        with os.scandir(folder) as entries:
            found = [(e.stat().st_mtime_ns, e.path) for e in entries if e.name.endswith(suffix)]
    except OSError:
        return []
    gone = [Path(path) for _, path in sorted(found)[: max(len(found) - most, 0)]]
    for path in gone:
        with contextlib.suppress(OSError):
            path.unlink()
    return gone

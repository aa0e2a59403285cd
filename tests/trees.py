"""Comparing folders before and after."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[str, tuple[object, ...]]


def tree_of(root: Path) -> Tree:
    """Everything below a folder: names, kinds, rights, times and contents of files, targets."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        at = path.lstat()
        name = path.relative_to(root).as_posix()
        if stat.S_ISLNK(at.st_mode):
            found[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(at.st_mode):
            found[name] = ("folder", stat.S_IMODE(at.st_mode))
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = ("file", stat.S_IMODE(at.st_mode), at.st_mtime_ns, content)
    return found

"""What is mounted where, as /proc/self/mountinfo says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from .tree import Tree


@dataclass(frozen=True)
class Mount:
    """One file system.

    Attributes:
        kind: ``ext4``, ``cgroup2``, ...
        root: the folder of it that shows at ``point``.
        point: where it is mounted.
        options: of the file system itself, comma-separated.
    """

    kind: str
    root: PurePosixPath
    point: PurePosixPath
    options: str


def mounts(tree: Tree) -> Iterator[Mount]:
    """In the order in which they were mounted; lines of another form are left out."""
    for line in (tree.text("proc/self/mountinfo") or "").splitlines():
        before, found, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if found and len(fields) >= 5 and len(kind) >= 3:
            root, point = (PurePosixPath(_unescape(field)) for field in fields[3:5])
            yield Mount(kind[0], root, point, kind[2])


def mount_of(tree: Tree, path: PurePosixPath) -> Mount | None:
    """The file system that holds an absolute path without links."""
    best: Mount | None = None
    for mount in mounts(tree):
        if path.is_relative_to(mount.point) and (
            # One mounted later over the same folder hides the earlier.
            best is None or len(mount.point.parts) >= len(best.point.parts)
        ):
            best = mount
    return best


def _unescape(text: str) -> str:
    """The kernel writes blanks in paths as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)

"""What the journal holds of an operation: all that taking it back needs.

An entry is written before its operation begins. So it says what may have happened, and undoing
looks at what did. Paths are real ones, their folders resolved.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, get_type_hints

from .disk import Seen


@dataclass(frozen=True)
class FolderMade:
    """A folder was created; it is removed when empty."""

    do: ClassVar[str] = "make-folder"
    path: Path


@dataclass(frozen=True)
class FilePlaced:
    """A file was written to where there was none, through ``temp`` beside it."""

    do: ClassVar[str] = "place"
    path: Path
    temp: Path
    sha256: str


@dataclass(frozen=True)
class FileReplaced:
    """A file got another content; ``backup`` is the name of the original's copy with us."""

    do: ClassVar[str] = "replace"
    path: Path
    temp: Path
    sha256: str
    backup: str
    original: Seen


@dataclass(frozen=True)
class HardLinked:
    """A file got a second name. Told by size and time of change: models are long to hash."""

    do: ClassVar[str] = "hard-link"
    path: Path
    size: int
    mtime_ns: int

    def is_ours(self) -> bool:
        """Whether the name can go: the file is the one linked, or has other names still."""
        try:
            at = self.path.lstat()
        except OSError:
            return False
        same = (at.st_size, at.st_mtime_ns) == (self.size, self.mtime_ns)
        return stat.S_ISREG(at.st_mode) and (same or at.st_nlink > 1)


@dataclass(frozen=True)
class Symlinked:
    """A symbolic link was created."""

    do: ClassVar[str] = "symlink"
    path: Path
    target: str


@dataclass(frozen=True)
class Moved:
    """Something was moved; ``sha256`` if it is a file."""

    do: ClassVar[str] = "move"
    source: Path
    path: Path
    sha256: str | None


@dataclass(frozen=True)
class StoodIn:
    """A program of ours took the place of one of the host's, through ``temp`` beside it.

    ``original`` is the SHA-256 of the host's, ``None`` if it is a link.
    """

    do: ClassVar[str] = "stand-in"
    path: Path
    kept: Path
    temp: Path
    sha256: str
    original: str | None


@dataclass(frozen=True)
class Called:
    """The host's API was asked; see :class:`.operations.Call`."""

    do: ClassVar[str] = "call"
    what: str
    method: str | None
    url: str | None
    body: Mapping[str, Any] | None
    required: bool


@dataclass(frozen=True)
class Ran:
    """A command of the host's ran; see :class:`.operations.Run`."""

    do: ClassVar[str] = "run"
    what: str
    argv: tuple[str, ...] | None
    timeout: float
    required: bool


Entry = (
    FolderMade | FilePlaced | FileReplaced | HardLinked | Symlinked | Moved | StoodIn | Called | Ran
)
_KINDS = {
    kind.do: kind
    for kind in (
        FolderMade, FilePlaced, FileReplaced, HardLinked, Symlinked, Moved, StoodIn, Called, Ran,
    )
}  # fmt: skip


def to_json(entry: Entry) -> dict[str, Any]:
    """The entry for a line of the journal."""
    data = {k: str(v) if isinstance(v, Path) else v for k, v in asdict(entry).items()}
    return {"do": entry.do, **data}


def from_json(data: Mapping[str, Any]) -> Entry:
    """The entry of a line.

    Raises:
        ValueError: it is none.
    """
    kind = _KINDS.get(data.get("do", ""))
    if kind is None:
        raise ValueError(f"unknown operation {data.get('do')!r}")
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in data:
            raise ValueError(f"no {field.name!r}")
        value = data[field.name]
        if hints[field.name] is Path:
            value = Path(value)
        elif hints[field.name] is Seen:
            value = Seen(**value)
        elif isinstance(value, list):
            value = tuple(value)
        values[field.name] = value
    entry: Entry = kind(**values)
    return entry

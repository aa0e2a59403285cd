"""What an installation does, as data. :mod:`srhpm_plugin.install` executes and undoes it.

Every operation names one thing in the world, says how to do it and holds enough to take it back.
Files that an operation replaces are kept by the executor; nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class MakeFolder:
    """Creates a folder, with its parents; each one created is journaled and removed when empty.

    Attributes:
        owner: account that shall own it; only set by root.
    """

    path: Path
    mode: int = 0o755
    owner: str | None = None


@dataclass(frozen=True)
class WriteFile:
    """Writes a file of ours, or a new text of a file of the user's.

    Attributes:
        expected: SHA-256 (hex) of what the file held when the operation was made; ``None``: there
            was no file. Anything else found there stops the installation.
    """

    path: Path
    content: bytes
    mode: int | None = None
    expected: str | None = None


@dataclass(frozen=True)
class CopyFile:
    """Copies a file to where there is none. ``link`` allows a hard link instead."""

    source: Path
    path: Path
    mode: int | None = None
    link: bool = False


@dataclass(frozen=True)
class Symlink:
    """Creates a symbolic link to where there is nothing."""

    target: Path
    path: Path


@dataclass(frozen=True)
class Rename:
    """Moves a file or folder within one file system to where there is nothing."""

    source: Path
    path: Path


@dataclass(frozen=True)
class StandIn:
    """Puts a copy of a program where a program of the host's is, which is kept under another name.

    One of the two is there at every moment: the host may start it while this is done or undone.

    Attributes:
        source: our program.
        path: the host's place.
        kept: the host's own program from then on; in the same file system, nothing there yet.
    """

    source: Path
    path: Path
    kept: Path
    mode: int = 0o755


@dataclass(frozen=True)
class Call:
    """A request to the host's own API, and the one that takes it back.

    Attributes:
        url: on loopback.
        body: sent as JSON.
        undo_method, undo_url, undo_body: ``None``: nothing to take back.
        what: in words, for the plan and for errors.
        required: a failure stops the installation; else it becomes a note.
    """

    method: str
    url: str
    body: Mapping[str, Any] | None
    what: str
    undo_method: str | None = None
    undo_url: str | None = None
    undo_body: Mapping[str, Any] | None = None
    required: bool = True


@dataclass(frozen=True)
class Run:
    """A command of the host's own, e.g. ``lms runtime select``, and the one that takes it back."""

    argv: tuple[str, ...]
    what: str
    undo_argv: tuple[str, ...] | None = None
    timeout: float = 30.0
    required: bool = False


Operation = MakeFolder | WriteFile | CopyFile | Symlink | Rename | StandIn | Call | Run

"""Operations and what taking them back does, in words and as JSON."""

from __future__ import annotations

from typing import Any

from ..host import Host
from . import entries
from .operations import (
    Call,
    CopyFile,
    MakeFolder,
    Operation,
    Rename,
    Run,
    StandIn,
    Symlink,
    WriteFile,
)  # fmt: skip


def describe(operation: Operation) -> str:
    """What an operation will do."""
    match operation:
        case MakeFolder():
            return f"create the folder {operation.path}"
        case WriteFile(expected=None):
            return f"write {operation.path} ({len(operation.content)} bytes)"
        case WriteFile():
            return f"change {operation.path} (the original is kept)"
        case CopyFile():
            return f"copy {operation.source} to {operation.path}"
        case Symlink():
            return f"link {operation.path} to {operation.target}"
        case Rename():
            return f"move {operation.source} to {operation.path}"
        case StandIn():
            return (
                f"keep {operation.path} as {operation.kept}, then put a copy of {operation.source} "
                "in its place"
            )
        case Call():
            return f"{operation.what} ({operation.method} {operation.url})"
        case Run():
            return f"{operation.what} ({' '.join(operation.argv)})"


def operation_json(operation: Operation) -> dict[str, Any]:
    """An operation for ``--json``; contents are left out, they may hold the user's secrets."""
    paths = {
        name: str(value)
        for name in ("path", "source", "kept", "target", "url")
        if (value := getattr(operation, name, None)) is not None
    }
    return {"do": type(operation).__name__, **paths, "words": describe(operation)}


def describe_undo(entry: entries.Entry) -> str | None:
    """What taking an entry back will do, if it is still ours; ``None`` where nothing."""
    match entry:
        case entries.FolderMade():
            return f"remove the folder {entry.path} if it is empty"
        case entries.FileReplaced():
            return f"put back the original of {entry.path}"
        case entries.Moved():
            return f"move {entry.path} back to {entry.source}"
        case entries.StoodIn():
            return f"move {entry.kept} back to {entry.path}, over ours"
        case entries.Called():
            return f"take back: {entry.what} ({entry.method} {entry.url})" if entry.url else None
        case entries.Ran():
            return f"take back: {entry.what} ({' '.join(entry.argv)})" if entry.argv else None
        case _:
            return f"remove {entry.path}"


def title_of(host: Host | None, name: str) -> str:
    """The host's title; its name where its plugin is gone."""
    return host.title if host is not None else name

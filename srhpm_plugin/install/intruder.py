"""A drop-in of ours where the host's own server should be.

Another installation put it there (another ``SRHPM_HOME``, perhaps gone since), or something changed
it after this one had. Kept as the host's server it would stand in for itself, and the host would
have none.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ..dropin.note import Note
from ..errors import UserError
from .operations import Operation, Rename, StandIn
from .state import state_folder

_MARK = b"SRHPM_DROPIN_TIMEOUT_MS"  # a variable that every drop-in asks for, and no server
_MOST_BYTES = 16 << 20


def refuse(operations: Iterable[Operation], host: str, title: str, root: Path) -> None:
    """Stops an installation that would put one of ours aside as the host's own.

    Raises:
        UserError: with how to take the other one out.
    """
    for operation in operations:
        if isinstance(operation, Rename):
            _refuse(operation.source, operation.path, host, title, root)
        elif isinstance(operation, StandIn):
            _refuse(operation.path, operation.kept, host, title, root)


def _refuse(server: Path, kept: Path, host: str, title: str, root: Path) -> None:
    note = _note(server)
    if note is None and not is_dropin(server):
        return
    what = f"cannot install in {title}"
    if note is not None and note.home is not None and _stands(note.home, host, root):
        raise UserError(
            what,
            f"{server} is SR-HPM already, put there with SRHPM_HOME={note.home}",
            f"take that out first, with SRHPM_HOME set so: srhpm-plugin uninstall --host {host}",
        )
    original = kept if note is None or note.original is None else server.parent / note.original
    if original.is_file():
        do = (
            f"move {original} over it, delete {Note.path_for(server)} if it is there, and try again"
        )
    else:
        do = f"install {title} again, which brings its own, then try again"
    raise UserError(
        what, f"{server} is SR-HPM's program, of no installation that is known here", do
    )


def _note(server: Path) -> Note | None:
    try:
        return Note.parse(Note.path_for(server).read_bytes())
    except (OSError, ValueError):
        return None


def is_dropin(server: Path) -> bool:
    """Whether a file is a drop-in, of whatever version, and also if something was added to it (a
    signature, say)."""
    try:
        return server.stat().st_size <= _MOST_BYTES and _MARK in server.read_bytes()
    except OSError:
        return False


def _stands(home: Path, host: str, root: Path) -> bool:
    return (home / "data" / "installs" / state_folder(host, root).name).is_dir()

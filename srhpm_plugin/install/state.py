"""The installations there are, and how each stands now."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .. import home
from ..dropin.note import SUFFIX, Note
from ..errors import UserError
from ..host import Host, Installation
from . import disk, journal
from .entries import FilePlaced, FileReplaced, HardLinked, Moved, StoodIn, Symlinked
from .execute import BACKUP
from .journal import Journal

State = Literal[
    "in place",
    "changed by user",
    "damaged note",
    "wiped by an upgrade",
    "host gone",
    "partly done",
    "damaged",
]
OWN = "own"
_File = FilePlaced | FileReplaced | HardLinked | StoodIn | Symlinked
_FILES = (FilePlaced, FileReplaced, HardLinked, StoodIn, Symlinked)
_FOLDER = re.compile(r"(?P<host>[a-z0-9][a-z0-9._-]*)-[0-9a-f]{8}")


def installs_dir() -> Path:
    """Folder of all installations' states."""
    return home.data_dir() / "installs"


def state_folder(host: str, root: Path) -> Path:
    """Folder of one installation's state.

    Raises:
        UserError: the host's name is none.
    """
    digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    name = f"{host}-{digest}"
    if not _FOLDER.fullmatch(name):
        raise UserError(
            f"no host {host!r}", "a name has small letters, digits and dashes", "mend its plugin"
        )
    return installs_dir() / name


@dataclass(frozen=True)
class Record:
    """An installation as its journal has it.

    Attributes:
        folder: its state folder.
        host: name of the host's plugin.
        journal: ``None``: there is none, or it cannot be read.
        damage: why not; ``None`` where a crash left a folder without a journal.
    """

    folder: Path
    host: str
    journal: Journal | None
    damage: str | None = None

    @property
    def root(self) -> Path | None:
        """The host's folder."""
        return Path(self.journal.begin.root) if self.journal else None


def records(host: str | None = None) -> Iterator[Record]:
    """All installations, of one host or of all.

    Raises:
        OSError: the folder cannot be read.
    """
    try:
        folders = sorted(p for p in installs_dir().iterdir() if p.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for folder in folders:
        match = _FOLDER.fullmatch(folder.name)
        if match and host in (None, match["host"]):
            yield read_record(folder, match["host"])


def read_record(folder: Path, host: str) -> Record:
    """The installation whose state lies in ``folder``."""
    try:
        found = journal.read(folder)
    except (ValueError, OSError) as error:
        return Record(folder, host, None, f"{folder / journal.NAME}: {error}")
    return Record(folder, host, found)


def discard(folder: Path) -> bool:
    """Removes the state of an installation that is completely undone; the journal last, so that a
    crash leaves something to go on from. Whether nothing of it is left."""
    shutil.rmtree(folder / BACKUP, ignore_errors=True)
    (folder / (journal.NAME + ".new")).unlink(missing_ok=True)
    disk.remove_folder(folder / OWN)
    disk.remove(folder / journal.NAME)
    return disk.remove_folder(folder)


@dataclass(frozen=True)
class Condition:
    """How an installation stands.

    Attributes:
        state: in a word.
        detail: what is different from how it should be; empty where nothing is.
        found: the host's copy as it is now.
    """

    state: State
    detail: str = ""
    found: Installation | None = None


def examine(record: Record, host: Host | None) -> Condition:
    """Looks at what is in place now; changes nothing."""
    stands = record.journal
    if stands is None:
        if record.damage:
            return Condition("damaged", record.damage)
        return Condition("partly done", "it stopped before it began")
    if stands.damage:
        return Condition("damaged", stands.damage)
    root = Path(stands.begin.root)
    if stands.unfinished:
        what = "uninstalling" if stands.undoing else "installing"
        return Condition("partly done", f"{what} stopped before its end")
    if not os.path.lexists(root):
        return Condition("host gone", f"{root} is not there any more")
    found = find_again(stands, host)
    differences = [text for _, entry in stands.standing if (text := _difference(entry))]
    places = {e.source for e in stands.entries.values() if isinstance(e, Moved)}
    replaced = [
        e.path
        for e in stands.entries.values()
        if isinstance(e, StoodIn)
        or (isinstance(e, FilePlaced | HardLinked | Symlinked) and e.path in places)
        if not _same(e)
    ]
    if replaced:
        return Condition("wiped by an upgrade", f"{replaced[0]} is not ours any more", found)
    for _, entry in stands.standing:
        if isinstance(entry, FilePlaced) and (text := _damaged_note(entry)):
            return Condition("damaged note", text, found)
    if host is not None and found is None:
        return Condition("wiped by an upgrade", f"no {host.title} is found at {root}")
    if host is not None and found is not None and not host.registered(found):
        detail = differences[0] if differences else f"{host.title} does not name us any more"
        return Condition("wiped by an upgrade", detail, found)
    if differences:
        return Condition("changed by user", "; ".join(differences), found)
    return Condition("in place", found=found)


def copies(host: Host) -> Iterator[Installation]:
    """The copies that the host's plugin finds by itself, then those that only ``--path`` found
    when SR-HPM was installed there."""
    seen = set()
    for found in host.find(None):
        seen.add(str(found.root))
        yield found
    try:
        known = list(records(host.name))
    except OSError:  # another user's
        return
    for record in known:
        stands = record.journal
        if stands is None or stands.begin.path is None or stands.begin.root in seen:
            continue
        again = find_again(stands, host)
        if again is not None:
            seen.add(stands.begin.root)
            yield again


def find_again(stands: Journal, host: Host | None) -> Installation | None:
    """The host's copy of a journal as it is found now."""
    if host is None:
        return None
    begin = stands.begin
    for path in dict.fromkeys((Path(begin.path) if begin.path else None, None, Path(begin.root))):
        try:
            for found in host.find(path):
                if str(found.root) == begin.root:
                    return found
        except Exception:  # a plugin's fault must not keep anybody from uninstalling
            continue
    return None


def _difference(entry: object) -> str | None:
    """How what an entry made differs from it now, in words."""
    kept = {Moved: "path", StoodIn: "kept"}.get(type(entry))
    if kept is not None and not os.path.lexists(path := getattr(entry, kept)):
        return f"{path} is gone"
    if not isinstance(entry, _FILES) or _same(entry):
        return None
    gone = disk.kind(entry.path) == "nothing"
    return f"{entry.path} {'is gone' if gone else 'was changed'}"


def _damaged_note(entry: FilePlaced) -> str | None:
    """Why a drop-in can no longer read its note; ``None`` where it can, and of any other file."""
    if entry.path.suffix != SUFFIX or _same(entry):
        return None
    try:
        Note.parse(entry.path.read_bytes())
    except (OSError, ValueError):
        gone = disk.kind(entry.path) == "nothing"
        what = "is gone" if gone else "is damaged"
        return f"{entry.path} {what}: nothing runs on SR-HPM until it is written again"
    return None


def _same(entry: _File) -> bool:
    """Whether what an entry put there is there still."""
    if isinstance(entry, HardLinked):
        return entry.is_ours()
    if isinstance(entry, Symlinked):
        return disk.kind(entry.path) == "link" and str(entry.path.readlink()) == entry.target
    return disk.digest(entry.path) == entry.sha256

"""Takes one operation back: looks at what is there, and never touches what is no longer ours.

An entry says what may have happened. Undoing is decided by what the files hold, so doing it twice,
or after a crash in the middle, comes to the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatchmethod
from pathlib import Path
from typing import Literal

from ..dropin.note import SUFFIX
from . import disk, effects
from .entries import (
    Called,
    FilePlaced,
    FileReplaced,
    FolderMade,
    HardLinked,
    Moved,
    Ran,
    StoodIn,
    Symlinked,
)  # fmt: skip
from .execute import BACKUP
from .intruder import is_dropin
from .places import moved_since

TakeOut = Callable[[Path, bytes], bytes | None]


@dataclass(frozen=True)
class Outcome:
    """What became of an entry.

    Attributes:
        how: ``undone``: as it was before, or gone already. ``kept``: something there is not ours to
            remove; that is final. ``failed``: to be tried again.
        text: what there is to say of it, one line; empty where there is nothing.
        error: what the disk said, where that was it.
    """

    how: Literal["undone", "kept", "failed"]
    text: str = ""
    error: OSError | None = None


UNDONE = Outcome("undone")


@dataclass(frozen=True)
class Undoer:
    """Takes entries back, last first.

    Attributes:
        folder: the installation's state folder.
        title: the host's, for messages.
        upgraded: the host has another version than when we were installed.
        take_out: the host plugin's :class:`srhpm_plugin.host.TakesOut`, if it has it.
    """

    folder: Path
    title: str
    upgraded: bool = False
    take_out: TakeOut | None = None

    def undo(self, entry: object) -> Outcome:
        """Takes an entry back; never raises for what the disk or the host does."""
        path = getattr(entry, "path", None)
        try:
            for place in (path, getattr(entry, "source", None), getattr(entry, "kept", None)):
                if place is not None and moved_since(place):
                    where = os.path.realpath(place.parent)
                    text = f"{place} left: its folder is now a link to {where}"
                    return Outcome("kept", text)
            return self._undo(entry)
        except effects.EffectError as error:
            return Outcome("failed", str(error))
        except OSError as error:
            where = path or error.filename
            return Outcome("failed", f"{where}: {(error.strerror or str(error)).lower()}", error)

    @singledispatchmethod
    def _undo(self, entry: object) -> Outcome:
        raise TypeError(f"no entry: {entry!r}")

    @_undo.register
    def _(self, entry: FolderMade) -> Outcome:
        if disk.remove_folder(entry.path):
            return UNDONE
        return Outcome("kept", f"{entry.path} left: it is not empty")

    @_undo.register
    def _(self, entry: FilePlaced) -> Outcome:
        disk.remove(entry.temp)
        # A drop-in that something has signed or stripped is ours still; left there, it would keep
        # the host's own server from its place and have none to hand over to. Nor is its note
        # anybody else's: left there, damaged perhaps, it would be in the way of the next one.
        note = entry.path.suffix == SUFFIX and disk.kind(entry.path) == "file"
        ours = note or disk.digest(entry.path) == entry.sha256 or is_dropin(entry.path)
        return self._remove(entry.path, ours)

    @_undo.register
    def _(self, entry: HardLinked) -> Outcome:
        return self._remove(entry.path, entry.is_ours())

    @_undo.register
    def _(self, entry: Symlinked) -> Outcome:
        is_link = disk.kind(entry.path) == "link"
        return self._remove(entry.path, is_link and str(entry.path.readlink()) == entry.target)

    def _remove(self, path: Path, ours: bool) -> Outcome:
        if ours:
            disk.remove(path)
        elif disk.kind(path) != "nothing":
            return Outcome("kept", f"{path} left: it is no longer what we put there")
        return UNDONE

    @_undo.register
    def _(self, entry: FileReplaced) -> Outcome:
        disk.remove(entry.temp)
        backup = self.folder / BACKUP / entry.backup
        now = disk.digest(entry.path)
        if now == entry.original.sha256:
            return UNDONE
        if disk.digest(backup) != entry.original.sha256:
            if now == entry.sha256:
                return Outcome("kept", f"{entry.path} left: its original at {backup} is damaged")
            return UNDONE  # nothing was replaced before the copy was whole
        if now == entry.sha256:
            self._restore(entry, backup, entry.path)
            return UNDONE
        if not entry.path.parent.is_dir():
            return UNDONE  # removed with all there was: its original would have been, too
        if now is not None and (outcome := self._edit(entry)):
            return outcome
        return self._keep_both(entry, backup)

    def _restore(self, entry: FileReplaced, backup: Path, path: Path) -> None:
        original = entry.original
        disk.write(entry.temp, backup, original.mode, owner=original, times=original)
        disk.copy_attributes(backup, entry.temp)
        disk.replace(entry.temp, path) if path == entry.path else disk.move(entry.temp, path)

    def _edit(self, entry: FileReplaced) -> Outcome | None:
        """Takes our lines out of a file that the user has changed, where the host knows how."""
        if self.take_out is None:
            return None
        seen = disk.see(entry.path)
        content = entry.path.read_bytes()
        try:
            cleaned = self.take_out(entry.path, content)
        except Exception:  # a plugin's fault must not keep the rest from being undone
            cleaned = None
        if cleaned is None:
            return None
        if cleaned != content:
            disk.write(entry.temp, cleaned, seen.mode, owner=seen)
            disk.copy_attributes(entry.path, entry.temp)
            disk.replace(entry.temp, entry.path)
        return Outcome("kept", f"{entry.path} was changed since: only our entries were taken out")

    def _keep_both(self, entry: FileReplaced, backup: Path) -> Outcome:
        state = (
            "is gone" if disk.kind(entry.path) == "nothing" else "was changed since, so it stays"
        )
        copy = entry.path.with_name(entry.path.name + ".before-srhpm")
        if disk.digest(copy) != entry.original.sha256:  # not put there before a crash
            copy = disk.beside(entry.path)
            self._restore(entry, backup, copy)
        return Outcome("kept", f"{entry.path} {state}; what it was before us is {copy}")

    @_undo.register
    def _(self, entry: Moved) -> Outcome:
        if disk.kind(entry.path) == "nothing":
            if disk.kind(entry.source) == "nothing" and entry.source.parent.is_dir():
                return Outcome("kept", f"{entry.source} is gone, and so is {entry.path}")
            return UNDONE
        if not entry.source.parent.is_dir():
            return Outcome("kept", f"{entry.path} left: the folder it came from is gone")
        if disk.kind(entry.source) == "nothing":
            disk.move(entry.path, entry.source)
            return UNDONE
        return self._superseded(entry.source, entry.path, entry.sha256)

    @_undo.register
    def _(self, entry: StoodIn) -> Outcome:
        disk.remove(entry.temp)
        here, held = disk.kind(entry.path), disk.digest(entry.path)
        ours = held == entry.sha256 or is_dropin(entry.path)
        if disk.kind(entry.kept) == "nothing":
            if held == entry.original and here != "nothing":
                return UNDONE  # it stopped before anything was done, or has been taken back
            if here == "nothing" and not entry.path.parent.is_dir():
                return UNDONE
            outcome = self._remove(entry.path, ours)
            text = f"{entry.path} is gone, and so is {entry.kept}"
            return Outcome("kept", text) if outcome is UNDONE else outcome
        if not entry.path.parent.is_dir():
            return Outcome("kept", f"{entry.kept} left: the folder it came from is gone")
        # Asked before what it holds: the original may hold what ours does, and renaming one name of
        # a file to another of the same file does nothing.
        if disk.one_file(entry.path, entry.kept):  # it stopped before ours was there
            disk.remove(entry.kept)
            return UNDONE
        if ours or here == "nothing":
            disk.replace(entry.kept, entry.path)
            return UNDONE
        if disk.same(entry.path, entry.kept):
            disk.remove(entry.kept)
            return UNDONE
        return self._superseded(entry.path, entry.kept, entry.original)

    def _superseded(self, place: Path, kept: Path, original: str | None) -> Outcome:
        """Something new lies where we took the original away."""
        mine, new = disk.digest(kept), disk.digest(place)
        if mine is not None and mine == original and (self.upgraded or mine == new):
            # The upgrade would have overwritten it, had we not been there.
            disk.remove(kept)
            return Outcome("undone", f"{place} is newer than what we kept of it: it stays")
        aside = disk.beside(kept)
        disk.move(kept, aside)
        return Outcome("kept", f"{place} is not ours, so it stays; the one before is {aside}")

    @_undo.register
    def _(self, entry: Called) -> Outcome:
        if entry.method is None or entry.url is None:
            return UNDONE
        try:
            effects.call(entry.method, entry.url, entry.body)
        except effects.EffectError as error:
            return self._not_undone(entry, error)
        return UNDONE

    @_undo.register
    def _(self, entry: Ran) -> Outcome:
        if entry.argv is None:
            return UNDONE
        try:
            effects.run(entry.argv, entry.timeout)
        except effects.EffectError as error:
            return self._not_undone(entry, error)
        return UNDONE

    def _not_undone(self, entry: Called | Ran, error: effects.EffectError) -> Outcome:
        if error.absent:
            return UNDONE
        text = f"not taken back: {entry.what}: {error}"
        return Outcome("failed" if entry.required or error.silent else "kept", text)

"""Executes one operation: looks, journals, acts."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from functools import singledispatchmethod
from pathlib import Path

from ..errors import UserError
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
from .journal import Journal
from .operations import (
    Call,
    CopyFile,
    MakeFolder,
    Rename,
    Run,
    StandIn,
    Symlink,
    WriteFile,
)  # fmt: skip
from .places import Places, temporary

BACKUP = "backup"
_PLAIN = 0o644


@dataclass(frozen=True)
class Executor:
    """Executes operations and journals them.

    Attributes:
        journal: of the installation.
        places: what may be written.
    """

    journal: Journal
    places: Places

    @singledispatchmethod
    def perform(self, operation: object) -> str | None:
        """Executes an operation; something to say, if it was left out.

        Raises:
            UserError: it cannot be done as it was meant.
            OSError: the disk does not let us.
            effects.EffectError: the host did not do what it must.
        """
        raise TypeError(f"no operation: {operation!r}")

    @perform.register
    def _(self, operation: MakeFolder) -> None:
        path = self.places.real(operation.path)
        missing = []
        for folder in (path, *path.parents):
            if folder.is_dir():
                break
            if disk.kind(folder) != "nothing":
                raise UserError(f"cannot create {path}", f"{folder} is no folder")
            missing.append(folder)
        for folder in reversed(missing):
            self.journal.announce(FolderMade(folder))
            disk.make_folder(folder, operation.mode if folder == path else 0o755)
            if folder == path and operation.owner is not None:
                disk.give(folder, operation.owner)

    @perform.register
    def _(self, operation: WriteFile) -> None:
        path = self.places.real(operation.path)
        sha = hashlib.sha256(operation.content).hexdigest()
        if operation.expected is None:
            self._require_free(path)
            self._place(path, operation.content, sha, operation.mode or _PLAIN)
        elif _require_file(path, operation.expected) != sha:
            self._rewrite(path, operation.content, sha, operation.mode)

    @perform.register
    def _(self, operation: CopyFile) -> None:
        path = self.places.real(operation.path)
        _require_source(operation.source)
        self._require_free(path)
        at = operation.source.stat()
        mode = operation.mode if operation.mode is not None else stat.S_IMODE(at.st_mode) & 0o777
        same_mode = mode == stat.S_IMODE(at.st_mode)
        if operation.link and same_mode and self._link(operation.source, path, at):
            return
        self._place(path, operation.source, _digest(operation.source), mode)

    @perform.register
    def _(self, operation: Symlink) -> None:
        path = self.places.real(operation.path)
        self._require_free(path)
        self.journal.announce(Symlinked(path, str(operation.target)))
        disk.symlink(operation.target, path)

    @perform.register
    def _(self, operation: Rename) -> None:
        source, path = self.places.real(operation.source), self.places.real(operation.path)
        if disk.kind(source) == "nothing":
            raise UserError(f"cannot move {source}", "it is not there")
        self._require_free(path)
        self.journal.announce(Moved(source, path, disk.digest(source)))
        disk.move(source, path)

    @perform.register
    def _(self, operation: StandIn) -> None:
        path, kept = self.places.real(operation.path), self.places.real(operation.kept)
        if disk.kind(path) not in ("file", "link"):
            raise UserError(f"cannot replace {path}", "there is no such file")
        _require_source(operation.source)
        self._require_free(kept)
        sha = _digest(operation.source)
        entry = StoodIn(path, kept, temporary(path), sha, disk.digest(path))
        self.journal.announce(entry)
        stays = disk.keep(path, kept, entry.temp)
        self._write(entry.temp, operation.source, sha, operation.mode)
        if stays:
            disk.replace(entry.temp, path)
        else:
            disk.move(path, kept)
            disk.move(entry.temp, path)

    @perform.register
    def _(self, operation: Call) -> str | None:
        number = self.journal.announce(
            Called(
                operation.what,
                operation.undo_method,
                operation.undo_url,
                operation.undo_body,
                operation.required,
            )
        )
        try:
            effects.call(operation.method, operation.url, operation.body)
        except effects.EffectError as error:
            return self._not_done(number, operation, error)
        return None

    @perform.register
    def _(self, operation: Run) -> str | None:
        number = self.journal.announce(
            Ran(operation.what, operation.undo_argv, operation.timeout, operation.required)
        )
        try:
            effects.run(operation.argv, operation.timeout)
        except effects.EffectError as error:
            return self._not_done(number, operation, error)
        return None

    def _not_done(self, number: int, operation: Call | Run, error: effects.EffectError) -> str:
        # Never taken back: a name that was refused because it is taken is somebody else's.
        if error.nothing_done:
            self.journal.say_failed(number)
        if operation.required:
            raise effects.EffectError(f"{operation.what}: {error}") from error
        return f"not done: {operation.what}: {error}"

    def _require_free(self, path: Path) -> None:
        if not path.parent.is_dir():
            raise UserError(f"cannot write {path}", "its folder is not there")
        if os.path.lexists(path):
            raise UserError(
                f"cannot write {path}", "it is there already", "move it away, then try again"
            )

    def _place(self, path: Path, content: bytes | Path, sha: str, mode: int) -> None:
        entry = FilePlaced(path, temporary(path), sha)
        self.journal.announce(entry)
        self._write(entry.temp, content, sha, mode)
        disk.move(entry.temp, path)

    def _write(self, temp: Path, content: bytes | Path, sha: str, mode: int) -> None:
        if disk.write(temp, content, mode) != sha:
            raise UserError(f"cannot copy {content!s}", "it changed meanwhile", "try again")

    def _rewrite(self, path: Path, content: bytes, sha: str, mode: int | None) -> None:
        original = disk.see(path)
        backup_name = f"{secrets.token_hex(8)}.original"
        entry = FileReplaced(path, temporary(path), sha, backup_name, original)
        self.journal.announce(entry)
        backup = self.journal.folder / BACKUP / entry.backup
        if disk.write(backup, path, 0o600) != original.sha256:
            raise _changed(path)
        disk.copy_attributes(path, backup)
        new = original.mode if mode is None else mode
        disk.write(entry.temp, content, new, owner=original)
        disk.copy_attributes(path, entry.temp)
        _require_file(path, original.sha256)
        disk.replace(entry.temp, path)

    def _link(self, source: Path, path: Path, at: os.stat_result) -> bool:
        source = Path(os.path.realpath(source))
        number = self.journal.announce(HardLinked(path, at.st_size, at.st_mtime_ns))
        try:
            disk.link(source, path)
        except OSError:  # another file system, or one without links
            self.journal.say_failed(number)
            return False
        return True


def _require_source(source: Path) -> None:
    if not source.is_file():
        raise UserError(f"cannot copy {source}", "there is no such file")


def _require_file(path: Path, expected: str) -> str:
    """Makes sure that a file holds what it held when the operation was made; its SHA-256."""
    if disk.kind(path) == "link":
        raise UserError(
            f"cannot change {path}",
            f"it is a symbolic link to {path.readlink()}",
            "replace it by the file itself",
        )
    if disk.digest(path) != expected:
        raise _changed(path)
    return expected


def _changed(path: Path) -> UserError:
    return UserError(f"cannot change {path}", "it changed meanwhile", "try again")


def _digest(path: Path) -> str:
    summed = hashlib.sha256()
    for block in disk.blocks(path):
        summed.update(block)
    return summed.hexdigest()

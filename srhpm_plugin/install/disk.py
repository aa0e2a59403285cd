"""What changes the disk: each function one step that is durable when it returns.

Files appear under their name complete or not at all. Links are never followed where we write.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Generator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Literal

Kind = Literal["nothing", "file", "folder", "link", "other"]
_BLOCK = 1 << 20
_NEW = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
)


@dataclass(frozen=True)
class Seen:
    """What a file was: content and everything of it that is put back with the content.

    Attributes:
        sha256: of the content, hex.
        mode: permission bits.
        uid, gid: owner; 0 on Windows.
        atime_ns, mtime_ns: nanoseconds.
    """

    sha256: str
    mode: int
    uid: int
    gid: int
    atime_ns: int
    mtime_ns: int


def kind(path: Path) -> Kind:
    """What lies at ``path``, itself and not what it may point to."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    for is_kind, name in ((stat.S_ISREG, "file"), (stat.S_ISDIR, "folder"), (stat.S_ISLNK, "link")):
        if is_kind(mode):
            return name  # type: ignore[return-value]
    return "other"


def blocks(path: Path) -> Generator[bytes, None, None]:
    """The content of a file, piece by piece."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def digest(path: Path) -> str | None:
    """SHA-256 (hex) of a regular file; ``None`` of anything else."""
    if kind(path) != "file":
        return None
    summed = hashlib.sha256()
    for block in blocks(path):
        summed.update(block)
    return summed.hexdigest()


def see(path: Path) -> Seen:
    """Everything of a regular file that is put back with it."""
    at = path.lstat()
    sha = digest(path)
    if sha is None:
        raise FileNotFoundError(2, "there is no such file", str(path))
    return Seen(sha, stat.S_IMODE(at.st_mode), at.st_uid, at.st_gid, at.st_atime_ns, at.st_mtime_ns)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable; Windows does so by itself."""
    if sys.platform != "win32":
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def write(
    path: Path,
    content: bytes | Path,
    mode: int,
    *,
    owner: Seen | None = None,
    times: Seen | None = None,
) -> str:
    """A new file; returns the SHA-256 of what was written.

    Args:
        content: bytes, or a file to copy.
        mode: permission bits.
        owner: whose owner it gets; else root's files belong to the folder's owner.
        times: whose times it gets; else those of the writing.
    """
    summed = hashlib.sha256()
    # The file to copy is closed also where writing fails: while the exception is kept, undoing
    # could not replace it on Windows, nor its disk be unmounted.
    source = closing(blocks(content)) if isinstance(content, Path) else nullcontext([content])
    with os.fdopen(os.open(path, _NEW, 0o600), "wb") as file, source as pieces:
        for block in pieces:
            summed.update(block)
            file.write(block)
        file.flush()
        if sys.platform != "win32":
            _dress(path, mode, owner, times)
        os.fsync(file.fileno())
    if sys.platform == "win32":  # sets the time of the last writing when the file is closed
        _dress(path, mode, owner, times)
    sync_folder(path.parent)
    return summed.hexdigest()


def _dress(path: Path, mode: int, owner: Seen | None, times: Seen | None) -> None:
    # The owner first: changing it takes special permission bits away. The mode last: the times of
    # a read-only file cannot be set on Windows.
    own(path, owner)
    if times is not None:
        os.utime(path, ns=(times.atime_ns, times.mtime_ns))
    path.chmod(mode)


def copy_attributes(source: Path, path: Path) -> None:
    """Access lists and labels, as far as the system lets us."""
    if sys.platform == "linux":
        for name, value in _attributes(source).items():
            with suppress(OSError):
                os.setxattr(path, name, value, follow_symlinks=False)


def _attributes(path: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    if sys.platform == "linux":
        with suppress(OSError):
            for name in os.listxattr(path, follow_symlinks=False):
                with suppress(OSError):
                    found[name] = os.getxattr(path, name, follow_symlinks=False)
    return found


def own(path: Path, like: Seen | None = None) -> None:
    """Gives a file of ours, made by root, to the owner of ``like`` or of the folder it lies in."""
    if sys.platform != "win32":
        if like is not None:
            # Without the right to, the content counts for more than the owner.
            with suppress(PermissionError):
                os.chown(path, like.uid, like.gid, follow_symlinks=False)
        elif os.geteuid() == 0:
            folder = path.parent.stat()
            if folder.st_uid != 0:
                os.chown(path, folder.st_uid, folder.st_gid, follow_symlinks=False)


def give(path: Path, account: str) -> None:
    """Gives a folder to an account, when we are root."""
    if sys.platform != "win32" and os.geteuid() == 0:
        shutil.chown(path, account)


def move(source: Path, path: Path) -> None:
    """Moves to where there is nothing.

    Raises:
        FileExistsError: there is something.
    """
    if os.path.lexists(path):
        raise FileExistsError(17, "it is there already", str(path))
    source.rename(path)
    sync_folder(path.parent)
    if source.parent != path.parent:
        sync_folder(source.parent)


def replace(source: Path, path: Path) -> None:
    """Moves over a file."""
    source.replace(path)
    sync_folder(path.parent)


def make_folder(path: Path, mode: int) -> None:
    """Creates one folder."""
    path.mkdir(0o700)
    own(path)
    path.chmod(mode)
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Removes a file or link, if it is there."""
    what = kind(path)
    if what == "nothing":
        return
    if sys.platform == "win32" and what == "file":
        path.chmod(stat.S_IWRITE)  # a read-only file is not removed there
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def remove_folder(path: Path) -> bool:
    """Removes a folder if it is empty; whether it is gone."""
    if kind(path) != "folder":
        return kind(path) == "nothing"
    if any(path.iterdir()):
        return False
    path.rmdir()
    sync_folder(path.parent)
    return True


def link(source: Path, path: Path) -> None:
    """A second name for a file."""
    os.link(source, path)
    sync_folder(path.parent)


def keep(path: Path, name: Path, temp: Path) -> bool:
    """Gives a file that is about to be replaced a second name: a link, or else a copy made through
    ``temp`` that differs in nothing. False: neither can be, and only moving it away is left."""
    # Windows lets nobody replace a program that runs, but move it away.
    if sys.platform != "win32" and kind(path) == "file":
        return _second_name(path, name, temp)
    return False


def _second_name(path: Path, name: Path, temp: Path) -> bool:
    try:
        link(path, name)
        return True
    except OSError:  # a file system without links, or another account's file
        if path.lstat().st_nlink > 1:
            return False
    before = see(path)
    write(temp, path, before.mode, owner=before, times=before)
    copy_attributes(path, temp)
    # Hashing it has read it, so the time of the last reading tells nothing.
    after = changed(see(temp), atime_ns=before.atime_ns)
    if after != before or _attributes(temp) != _attributes(path):
        remove(temp)
        return False
    move(temp, name)
    return True


def one_file(one: Path, other: Path) -> bool:
    """Whether two names are of one file (hard links of each other)."""
    if kind(one) != kind(other) or kind(one) not in ("file", "link"):
        return False
    return os.path.samestat(one.lstat(), other.lstat())


def same(one: Path, other: Path) -> bool:
    """Whether two names are of one file, or of files with the same content."""
    if kind(one) != "file" or kind(other) != "file":
        return False
    return one_file(one, other) or digest(one) == digest(other)


def symlink(target: Path, path: Path) -> None:
    """A symbolic link."""
    path.symlink_to(target)
    own(path)
    sync_folder(path.parent)


def beside(path: Path) -> Path:
    """A free name next to ``path`` for what it held before us."""
    names = (f"{path.name}.before-srhpm{tail}" for tail in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(p for name in names if not os.path.lexists(p := path.with_name(name)))

"""Steps that make a second folder of a host's files without a second copy of their bytes."""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from ..untrusted import inside
from .operations import CopyFile, MakeFolder, Operation, Symlink

MOST_ENTRIES = 20_000


def linked(source: Path, target: Path, without: Collection[str] = ()) -> Iterator[Operation]:
    """Folders, links and (hard-linked) files of ``source`` again below ``target``, itself included.

    Args:
        without: what to leave out, relative to ``source`` and with ``/``.

    Raises:
        ValueError: there is something in ``source`` that is not its own or no file, in words.
    """
    yield MakeFolder(target)
    for path in _walk(source, without):
        place = target / path.relative_to(source)
        if path.is_symlink():
            yield Symlink(path.readlink(), place)
        elif path.is_dir():
            yield MakeFolder(place)
        else:
            yield CopyFile(path, place, link=True)


def _walk(folder: Path, without: Collection[str]) -> Iterator[Path]:
    """Everything in a folder, folders before what is in them, none entered through a link."""
    count, pending = 0, [folder]
    while pending:
        here = pending.pop()
        for path in sorted(here.iterdir()):
            name = path.relative_to(folder).as_posix()
            if name in without:
                continue
            count += 1
            mode = path.lstat().st_mode
            if count > MOST_ENTRIES:
                raise ValueError(f"it has more than {MOST_ENTRIES} files")
            if inside(folder, name) is None:
                raise ValueError(f"{name!r} leads out of it, or not all systems take its name")
            if stat.S_ISLNK(mode):
                if path.readlink().is_absolute() or not path.exists():
                    raise ValueError(f"the link {name!r} leads nowhere in it")
            elif not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise ValueError(f"{name!r} is no file, folder or link")
            yield path
            if stat.S_ISDIR(mode):
                pending.append(path)

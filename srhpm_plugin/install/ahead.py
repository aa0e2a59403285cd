"""What would stop an installation, seen without changing anything: rights, and room on the disk.

``install`` looks before it begins and ``--dry-run`` looks likewise, so both say the same line.
Nothing is refused that would have worked: where this is in doubt, trying tells.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from . import disk
from .journal import Journal
from .operations import Call, CopyFile, MakeFolder, Operation, Run, StandIn, WriteFile


def trouble_ahead(
    operations: Iterable[Operation], state: Path, earlier: Journal | None
) -> OSError | None:
    """The error that executing ``operations`` would end with; ``None`` where none is foreseen.

    Args:
        state: where originals are kept.
        earlier: is taken back before; how much room there is shows only then.
    """
    places = (getattr(e, "path", None) for _, e in (earlier.standing if earlier else ()))
    needed = dict.fromkeys((place.parent for place in places if place), 0)
    for operation in operations:
        for folder, size in _written(operation, state):
            existing = _existing(folder)
            needed[existing] = needed.get(existing, 0) + size
    for folder in needed:
        if (code := _barred(folder)) is not None:
            return OSError(code, os.strerror(code), str(folder))
    return _too_full(needed) if earlier is None else None


def _written(operation: Operation, state: Path) -> Iterator[tuple[Path, int]]:
    """Folders that get something new, with the bytes that it has at least."""
    if isinstance(operation, (Call, Run)):
        return
    if isinstance(operation, MakeFolder):
        yield operation.path, 0
        return
    size = 0
    if isinstance(operation, WriteFile):
        size = len(operation.content)
        if operation.expected is not None:
            yield state, _size(operation.path)
    elif isinstance(operation, StandIn) or (isinstance(operation, CopyFile) and not operation.link):
        size = _size(operation.source)
    yield operation.path.parent, size


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # what is not there is said when it is to be copied
        return 0


def _existing(folder: Path) -> Path:
    """The folder, or the one above in which it is to be created."""
    return next((p for p in (folder, *folder.parents) if disk.kind(p) != "nothing"), folder)


def _barred(folder: Path) -> int | None:
    """The error that creating something in a folder ends with.

    Windows tells rights over a folder only to who tries; there this is always ``None``.
    """
    if not folder.is_dir():
        return None  # said with more words when it is to be used
    if os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        return None
    if sys.platform != "win32" and os.statvfs(folder).f_flag & os.ST_RDONLY:
        return errno.EROFS
    return errno.EACCES


def _too_full(needed: Mapping[Path, int]) -> OSError | None:
    by_disk: Counter[int] = Counter()
    for folder, size in needed.items():
        if size == 0:
            continue
        by_disk[folder.stat().st_dev] += size
        if by_disk[folder.stat().st_dev] > shutil.disk_usage(folder).free:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
    return None

"""Files that appear whole or not at all, and what an interrupted run left of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from ..errors import UserError
from ..home import cache_dir

_PART = re.compile(r"\.part-(\d+)$")


def demo_dir() -> Path:
    """Where the demo keeps its models: all of it can be made again. Created by this call.

    Raises:
        UserError: it cannot be created.
    """
    folder = cache_dir() / "demo"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return folder


@contextlib.contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A name to write to; becomes ``path`` when the body ends well, and goes when it does not.

    Raises:
        UserError: an OSError left the body.
    """
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Removes what runs that were killed have left in ``folder``."""
    for path in folder.iterdir():
        found = _PART.search(path.name)
        # A huge number in a name is no process id, and no reason to stop either.
        with contextlib.suppress(OSError, OverflowError):
            if not found or psutil.pid_exists(int(found[1])):
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def require_space(folder: Path, need: int) -> None:
    """Makes sure that ``need`` bytes can be written.

    Raises:
        UserError: they cannot.
    """
    free = shutil.disk_usage(folder).free
    if free < need:
        raise UserError(
            f"not enough space in {folder}",
            f"{need / 1e9:.1f} GB are needed for a while, {free / 1e9:.1f} GB are free",
            "free some, set SRHPM_HOME to a folder on another disk, or choose --size tiny",
        )


def cannot_write(path: Path, error: OSError) -> UserError:
    """The error for a file that could not be written."""
    return UserError(
        f"cannot write {path}",
        error.strerror or str(error),
        "free some space or set SRHPM_HOME to a folder on another disk",
    )


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()

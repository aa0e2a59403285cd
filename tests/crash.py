"""States of folders to compare, and processes that are killed at a step."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


def state(root: Path) -> Mapping[str, tuple[object, ...]]:
    """Everything below a folder that is to come back: kinds, modes, owners, contents, times."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        at = path.lstat()
        mode, owner = stat.S_IMODE(at.st_mode), (at.st_uid, at.st_gid)
        name = os.fsencode(path.relative_to(root)).decode("latin-1")
        if stat.S_ISLNK(at.st_mode):
            found[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(at.st_mode):
            found[name] = ("folder", mode, owner)
        else:
            found[name] = ("file", mode, owner, path.read_bytes(), at.st_mtime_ns, at.st_nlink)
    return found


_CHANGING = {
    "os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.chmod",
    "os.chown", "os.utime", "os.truncate", "os.setxattr", "subprocess.Popen",
}  # fmt: skip


def changes(event: str, args: tuple[Any, ...]) -> bool:
    """Whether an audit event announces a change of the disk, or a command."""
    if event == "open":
        return bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in _CHANGING


def forked(action: Callable[[], object], prepare: Callable[[], object]) -> int:
    """Runs ``action`` in a child process; its exit code, negative for a signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            prepare()
            action()
            code = 0
        except BaseException as error:  # the parent must not go on twice
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def die() -> None:
    """As ``kill -9`` does it: nothing is cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


def at_change(number: int, do: Callable[[], object]) -> Callable[[], None]:
    """Does something right before the ``number``-th change of this process, counted from 0."""

    def prepare() -> None:
        left = number

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal left
            if changes(event, args):
                left -= 1
                if left == -1:
                    do()

        sys.addaudithook(hook)

    return prepare


def half_written(number: int) -> Callable[[], None]:
    """Dies in the middle of the ``number``-th line of the journal."""

    def prepare() -> None:
        real, left = os.write, number

        def write(fd: int, data: bytes) -> int:
            nonlocal left
            left -= 1
            if left == -1:
                real(fd, data[: len(data) // 2])
                die()
            return real(fd, data)

        os.write = write  # type: ignore[assignment]

    return prepare


def until_it_lives(
    prepared: Callable[[int], Callable[[], None]], action: Callable[[], object]
) -> Iterator[int]:
    """Runs an action in children that die at step 0, 1, 2, ... and yields after each death."""
    for number in range(1000):
        code = forked(action, prepared(number))
        if code == 0:
            assert number > 0
            return
        assert code == -signal.SIGKILL, f"step {number} ended with {code}"
        yield number
    raise AssertionError("it never ends")


def creates(number: int) -> Callable[[], None]:
    """From the ``number``-th creation of a file or folder on, the disk is full."""
    creating = {"os.mkdir", "os.link", "os.symlink"}

    def prepare() -> None:
        left = number

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal left
            if event in creating or (event == "open" and args[2] & os.O_CREAT):
                left -= 1
                if left < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/the/disk")

        sys.addaudithook(hook)

    return prepare

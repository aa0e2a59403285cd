"""Whether another account can read a file, told by permission bits alone.

Access lists and security modules may allow more or less; the host's own log tells then.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

READ, WRITE, SEARCH = 4, 2, 1


@dataclass(frozen=True)
class Account:
    """An account of this machine: its number and those of all its groups."""

    name: str
    uid: int
    gids: frozenset[int]

    def may(self, path: Path, rights: int) -> bool:
        """Whether the bits of ``path`` itself (links followed) give it all of ``rights``."""
        at = path.stat()
        if self.uid == 0:
            return True
        shift = 6 if at.st_uid == self.uid else 3 if at.st_gid in self.gids else 0
        return (stat.S_IMODE(at.st_mode) >> shift) & rights == rights

    def barred(self, path: Path, rights: int) -> Path | None:
        """What keeps the account from ``path``: itself or a folder above; ``None`` if nothing does.

        A link's way and its target's are looked at.
        """
        for way in dict.fromkeys((path.absolute(), Path(os.path.realpath(path)))):
            for folder in reversed(way.parents):
                if not self.may(folder, SEARCH):
                    return folder
            if not self.may(way, rights):
                return way
        return None


def account(name: str) -> Account | None:
    """The account called ``name``; ``None`` on Windows, and where there is none."""
    found = None
    if sys.platform != "win32":
        import pwd

        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            groups = os.getgrouplist(name, entry.pw_gid)
            found = Account(name, entry.pw_uid, frozenset(groups))
    return found


def is_me(name: str) -> bool:
    """Whether ``name`` is the account that we run as, which then needs no asking."""
    known = account(name)
    return known is not None and sys.platform != "win32" and known.uid == os.geteuid()

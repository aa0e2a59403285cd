"""Reading /sys and /proc, real or laid out by a test: nothing here raises, doubts become notes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

# Files of /sys and /proc are small; a limit keeps a strange one from filling memory.
_MAX_BYTES = 1 << 22
# No kernel is built for more; a larger number in a list is damage.
_MAX_CPUS = 1 << 14


class Tree:
    """A file system below ``root`` with the layout of Linux's ``/``.

    A file that is not there is normal and yields ``None``; one that is there but cannot be read
    or understood yields ``None`` and a line in :attr:`notes`.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Adds a line once."""
        if text not in self.notes:
            self.notes.append(text)

    def path(self, name: str) -> Path:
        """Where ``name`` (with or without leading slash) lies."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """The stripped text of a file."""
        try:
            with self.path(name).open("rb") as file:
                return file.read(_MAX_BYTES).decode("utf-8", "replace").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            self.note(f"/{name.lstrip('/')} cannot be read: {_reason(error)}")
            return None

    def integer(self, name: str) -> int | None:
        """The number a file holds."""
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"-?[0-9]{1,20}", text):
            self.note(f"/{name.lstrip('/')} holds no number")
            return None
        return int(text)

    def cpu_list(self, name: str) -> frozenset[int] | None:
        """CPU or node numbers from a list such as ``0-3,8``; empty files give an empty set."""
        text = self.text(name)
        if text is None:
            return None
        numbers = parse_list(text)
        if numbers is None:
            self.note(f"/{name.lstrip('/')} holds no list of numbers")
        return numbers

    def children(self, name: str, pattern: str) -> list[str]:
        """Names in a folder that match a regular expression, sorted."""
        try:
            found = [p.name for p in self.path(name).iterdir() if re.fullmatch(pattern, p.name)]
        except OSError:
            return []
        return sorted(found)


def parse_list(text: str) -> frozenset[int] | None:
    """``0-3,8`` as numbers, ``None`` when it is something else."""
    numbers: set[int] = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", item)
        if not match:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last >= _MAX_CPUS:
            return None
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def fields(text: str, separator: str = ":") -> Iterable[tuple[str, str]]:
    """``key: value`` lines."""
    for line in text.splitlines():
        key, found, value = line.partition(separator)
        if found:
            yield key.strip(), value.strip()


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()

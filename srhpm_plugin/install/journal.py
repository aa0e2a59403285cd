"""The journal of one installation: JSON lines, each on the disk before what it announces happens.

``begin`` (who, where, with what), an ``entry`` before each operation, ``failed`` after one that
did not happen, ``complete``; then ``undo`` and an ``undone`` after each entry taken back. A line
cut short by a crash announces nothing that happened, so it is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import disk, entries
from .entries import Entry

NAME = "journal.jsonl"
VERSION = 1


@dataclass(frozen=True)
class Begin:
    """The first line.

    Attributes:
        host, root, version, how, facts, user: of :class:`srhpm_plugin.host.Installation`.
        path: the user's ``--path``.
        mode: ``all`` or ``select``.
        tools: what was put in place, for telling whether anything changed since.
        when: seconds since 1970.
        program: version of this package.
    """

    host: str
    root: str
    version: str | None
    how: str
    facts: Mapping[str, str]
    user: str | None
    path: str | None
    mode: str
    tools: Mapping[str, str]
    when: float
    program: str


@dataclass
class Journal:
    """A journal as it stands.

    Attributes:
        folder: the installation's state folder.
        begin: the first line.
        entries: by number, in the order of execution.
        failed, undone: numbers.
        complete: everything was done.
        undoing: it is being taken back.
        damage: what cannot be read, in words.
    """

    folder: Path
    begin: Begin
    entries: dict[int, Entry] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    undone: set[int] = field(default_factory=set)
    complete: bool = False
    undoing: bool = False
    damage: str | None = None
    _fd: int | None = None

    @property
    def unfinished(self) -> bool:
        """Something stopped half way."""
        return not self.complete or self.undoing

    @property
    def standing(self) -> list[tuple[int, Entry]]:
        """What is to be taken back, last first."""
        gone = self.failed | self.undone
        return [(n, entry) for n, entry in reversed(self.entries.items()) if n not in gone]

    def announce(self, entry: Entry) -> int:
        """Writes an entry before it is executed; its number."""
        number = max(self.entries, default=-1) + 1
        self._append({"event": "entry", "n": number, **entries.to_json(entry)})
        self.entries[number] = entry
        return number

    def say_failed(self, number: int) -> None:
        """The operation did not happen."""
        self._append({"event": "failed", "n": number})
        self.failed.add(number)

    def say_complete(self) -> None:
        """All operations are done."""
        self._append({"event": "complete"})
        self.complete = True

    def say_undo(self) -> None:
        """Taking back begins. A full disk does not keep from it: what is announced here only
        helps to say what is going on."""
        with suppress(OSError):
            self._append({"event": "undo"})
        self.undoing = True

    def say_undone(self, number: int) -> None:
        """An entry is taken back. See :meth:`say_undo`: doing so again changes nothing."""
        with suppress(OSError):
            self._append({"event": "undone", "n": number})
        self.undone.add(number)

    def close(self) -> None:
        """Closes the file; it is opened again by the next line."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, line: Mapping[str, Any]) -> None:
        path = self.folder / NAME
        if self._fd is None:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0))
            os.ftruncate(self._fd, _whole(path.read_bytes()))
        data = _line(line)
        before = os.fstat(self._fd).st_size
        try:
            while data:
                data = data[os.write(self._fd, data) :]
            os.fsync(self._fd)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._fd, before)
            raise


def create(folder: Path, begin: Begin, carried: Sequence[Entry] = ()) -> Journal:
    """Starts a journal, in the place of one of which nothing is left but ``carried``."""
    lines = [_line({"event": "begin", "v": VERSION, **asdict(begin)})]
    for number, entry in enumerate(carried):
        lines.append(_line({"event": "entry", "n": number, **entries.to_json(entry)}))
    temp = folder / (NAME + ".new")
    disk.remove(temp)
    disk.write(temp, b"".join(lines), 0o644)
    disk.replace(temp, folder / NAME)
    return Journal(folder, begin, dict(enumerate(carried)))


def read(folder: Path) -> Journal | None:
    """The journal in a folder; ``None`` if there is none.

    Raises:
        ValueError: its first line cannot be read, or a newer version wrote it.
        OSError: it cannot be opened.
    """
    try:
        content = (folder / NAME).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    lines = content[: _whole(content)].splitlines()
    first = json.loads(lines[0]) if lines else {}
    if not isinstance(first, dict) or first.get("event") != "begin":
        raise ValueError("its first line is not one of ours")
    if first.get("v") != VERSION:
        raise ValueError(f"another version of srhpm-plugin wrote it ({first.get('v')})")
    try:
        begin = Begin(**{k: v for k, v in first.items() if k not in ("event", "v")})
    except TypeError as error:
        raise ValueError(str(error)) from None
    journal = Journal(folder, begin)
    for number, line in enumerate(lines[1:], 2):
        try:
            _take(journal, json.loads(line))
        except (ValueError, TypeError, KeyError) as error:
            journal.damage = f"line {number} of {folder / NAME} cannot be read ({error})"
    return journal


def _take(journal: Journal, data: Mapping[str, Any]) -> None:
    event = data["event"]
    if event == "entry":
        journal.entries[int(data["n"])] = entries.from_json(data)
    elif event == "failed":
        journal.failed.add(int(data["n"]))
    elif event == "undone":
        journal.undone.add(int(data["n"]))
    elif event == "complete":
        journal.complete = True
    elif event == "undo":
        journal.undoing = True
    else:
        raise ValueError(f"unknown event {event!r}")


def _line(data: Mapping[str, Any]) -> bytes:
    # ASCII with escapes: names that are no Unicode survive as lone surrogates.
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"


def _whole(content: bytes) -> int:
    """Bytes of complete lines."""
    return content.rfind(b"\n") + 1

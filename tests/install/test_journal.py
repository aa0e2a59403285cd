"""What the journal holds, and when."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crash import changes, forked
from toy_host import ToyHost

from srhpm_plugin.install import entries, journal
from srhpm_plugin.install.disk import Seen
from srhpm_plugin.install.state import records, state_folder
from srhpm_plugin.install.transaction import Job, install

SEEN = Seen("0" * 64, 0o640, 1, 2, 3, 4)
ALL = [
    entries.FolderMade(Path("/a")),
    entries.FilePlaced(Path("/a"), Path("/b"), "1" * 64),
    entries.FileReplaced(Path("/a\udcff\n"), Path("/b"), "1" * 64, "x.original", SEEN),
    entries.HardLinked(Path("/a"), 2, 3),
    entries.Symlinked(Path("/a"), "../b"),
    entries.Moved(Path("/a"), Path("/b"), None),
    entries.Called("ask", "DELETE", "http://localhost/", {"model": "x"}, True),
    entries.Ran("pick", ("a", "b"), 30.0, False),
    entries.Ran("pick", None, 30.0, False),
]


@pytest.mark.parametrize("entry", ALL, ids=lambda e: e.do)
def test_entries_survive(entry: entries.Entry) -> None:
    line = json.dumps(entries.to_json(entry))
    assert entries.from_json(json.loads(line)) == entry


@pytest.mark.parametrize("data", [{}, {"do": "dance"}, {"do": "move", "path": "/a"}])
def test_what_is_no_entry(data: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        entries.from_json(data)


def test_a_line_cut_short_is_dropped_and_overwritten(toy: ToyHost, job: Callable[..., Job]) -> None:
    install(job())
    (record,) = records()
    path = record.folder / journal.NAME
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b'{"event":"undo')
    stands = journal.read(record.folder)
    assert stands is not None
    assert (stands.complete, stands.undoing, stands.damage) == (True, False, None)
    stands.say_undo()
    stands.close()
    assert path.read_bytes() == whole + b'{"event":"undo"}\n'


def test_originals_are_private(toy: ToyHost, job: Callable[..., Job]) -> None:
    install(job())
    (record,) = records()
    (kept,) = (record.folder / "backup").iterdir()
    assert kept.read_bytes() == b"key: value\n"
    if sys.platform != "win32":
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert toy.root not in record.folder.parents


def test_copies_of_one_host_have_states_of_their_own(tmp_path: Path) -> None:
    one, two = (state_folder("toy", tmp_path / name) for name in "ab")
    assert one != two
    assert one.name.startswith("toy-")


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
@pytest.mark.usefixtures("durable")
def test_nothing_happens_before_it_is_on_the_disk(toy: ToyHost, job: Callable[..., Job]) -> None:
    """Every change in the host's folder is of a path that a line of the journal names, and all
    lines have been written through."""
    made = job()
    folder = state_folder("toy", toy.root)
    seen: list[str] = []

    def watch() -> None:
        unsynced: set[int] = set()
        write, sync = os.write, os.fsync

        def noted(fd: int, data: bytes) -> int:
            unsynced.add(fd)
            return write(fd, data)

        def synced(fd: int) -> None:
            sync(fd)
            unsynced.discard(fd)

        os.write, os.fsync = noted, synced  # type: ignore[assignment]

        def hook(event: str, args: tuple[Any, ...]) -> None:
            if not changes(event, args) or event == "subprocess.Popen":
                return
            path = str(args[0])
            if event in ("os.link", "os.symlink"):
                path = str(args[1])
            if not path.startswith(str(toy.root)):
                return
            text = (folder / journal.NAME).read_text()
            assert json.dumps(path)[1:-1] in text, (event, path)
            assert text.endswith("\n")
            assert not unsynced, (event, path)
            seen.append(path)

        sys.addaudithook(hook)

    def run() -> None:
        install(made)
        assert len(seen) > 15

    assert forked(run, watch) == 0
    (record,) = records()
    assert record.journal is not None
    assert record.journal.complete

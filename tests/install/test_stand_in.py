"""The host's own program is kept as it is, whatever the file system can do."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash import at_change, die, forked, state
from toy_host import ToyHost

from srhpm_plugin.install.operations import StandIn
from srhpm_plugin.install.state import examine, records
from srhpm_plugin.install.transaction import Job, install, uninstall

posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows moves the file away")


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: object, **named: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


@pytest.fixture
def kept(toy: ToyHost) -> Path:
    return toy.server.with_name("llama-server.original")


def take_out(toy: ToyHost) -> tuple[str, ...]:
    (record,) = records()
    return uninstall(record, toy, ["uninstall", "--host", "toy"])


def label(path: Path) -> None:
    if sys.platform == "linux":
        os.setxattr(path, "user.label", b"theirs")


def labels(path: Path) -> list[bytes]:
    if sys.platform != "linux":
        return []
    return [os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")]


def test_it_stays_the_same_file(toy: ToyHost, job: Callable[..., Job], kept: Path) -> None:
    number = toy.server.stat().st_ino
    install(job())
    assert kept.stat().st_ino == number
    take_out(toy)
    assert toy.server.stat().st_ino == number
    assert toy.server.stat().st_nlink == 1


@posix
@pytest.mark.usefixtures("no_links")
def test_a_copy_has_all_of_it(toy: ToyHost, job: Callable[..., Job], kept: Path) -> None:
    toy.server.chmod(0o750)
    label(toy.server)
    before, theirs = dict(state(toy.root)), labels(toy.server)
    number = toy.server.stat().st_ino
    install(job())
    assert kept.stat().st_ino != number
    assert state(toy.root)["lib/llama-server.original"] == before["lib/llama-server"]
    assert labels(kept) == theirs
    take_out(toy)
    assert state(toy.root) == before
    assert labels(toy.server) == theirs


@posix
def test_moved_where_a_copy_would_have_fewer_names(
    toy: ToyHost, job: Callable[..., Job], kept: Path, request: pytest.FixtureRequest
) -> None:
    os.link(toy.server, toy.root / "second name")
    request.getfixturevalue("no_links")
    before = dict(state(toy.root))
    install(job())
    assert kept.samefile(toy.root / "second name")
    take_out(toy)
    assert state(toy.root) == before


@pytest.mark.skipif(sys.platform != "linux", reason="labels are a thing of Linux")
@pytest.mark.usefixtures("no_links")
def test_moved_where_a_copy_would_lose_its_label(
    toy: ToyHost, job: Callable[..., Job], kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    label(toy.server)
    number = toy.server.stat().st_ino

    def refuse(*args: object, **named: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "setxattr", refuse)
    install(job())
    assert kept.stat().st_ino == number
    assert labels(kept) == [b"theirs"]
    assert not list(toy.root.rglob("*.tmp"))
    take_out(toy)
    assert toy.server.stat().st_ino == number


@posix
def test_killed_where_both_hold_the_same(
    toy: ToyHost, job: Callable[..., Job], kept: Path, tmp_path: Path
) -> None:
    """Two names of one file: renaming one to the other would leave both there."""
    source = tmp_path / "source"
    source.write_bytes(toy.server.read_bytes())
    toy.operations = lambda tools: [StandIn(toy.server, source, kept)]
    before = dict(state(toy.root))
    for step in range(100):
        whole = forked(lambda: install(job()), at_change(step, die)) == 0
        for record in records():
            uninstall(record, toy, ["uninstall", "--host", "toy"])
        assert state(toy.root) == before, step
        if whole:
            break
    assert step > 10


@pytest.mark.parametrize("there", [True, False])
def test_both_are_gone(toy: ToyHost, job: Callable[..., Job], kept: Path, there: bool) -> None:
    """Ours is taken out all the same; that there is no server then is said."""
    install(job())
    kept.unlink()
    if not there:
        toy.server.unlink()
    (record,) = records()
    condition = examine(record, toy)
    assert (condition.state, condition.detail) == (
        ("changed by user", f"{kept} is gone")
        if there
        else ("wiped by an upgrade", f"{toy.server} is not ours any more")
    )
    assert f"{toy.server} is gone, and so is {kept}" in take_out(toy)
    assert not toy.server.exists()


def test_its_folder_is_gone(toy: ToyHost, job: Callable[..., Job]) -> None:
    install(job())
    shutil.rmtree(toy.root / "lib")
    assert not [text for text in take_out(toy) if "lib" in text]


@posix
def test_a_link_is_kept_as_one(toy: ToyHost, job: Callable[..., Job], kept: Path) -> None:
    toy.server.rename(toy.root / "lib" / "llama-server-1")
    toy.server.symlink_to("llama-server-1")
    before = dict(state(toy.root))
    install(job())
    assert kept.readlink() == Path("llama-server-1")
    assert toy.server.read_bytes() == b"srhpm-llama-server"
    take_out(toy)
    assert state(toy.root) == before

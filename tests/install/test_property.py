"""Any operations on any folder, stopped anywhere: uninstalling restores every byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash import at_change, die, forked, state
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from toy_host import ToyHost

from srhpm_plugin.errors import UserError
from srhpm_plugin.install.operations import (
    CopyFile,
    MakeFolder,
    Operation,
    Rename,
    StandIn,
    Symlink,
    WriteFile,
)  # fmt: skip
from srhpm_plugin.install.state import records
from srhpm_plugin.install.transaction import Job, install, uninstall

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")

# What is there always, and names that are mostly free: else hardly any plan would fit. The others
# make operations meet each other and what is there.
THERE = ["f", "g", "d/f", "d/g", "h"]
FREE = ["1", "2", "3", "4", "5", "d/1", "d/2", "d/3", "d/4", "d/5"]
ODD = ["f/x", "d", "new", "new/1", "l"]
COMMAND = ["uninstall", "--host", "toy"]

source = st.sampled_from(THERE * 6 + FREE + ODD)
target = st.sampled_from(FREE * 4 + THERE + ODD)
content = st.binary(max_size=40)
mode = st.sampled_from([0o600, 0o644, 0o755, 0o400])
tree = st.fixed_dictionaries(
    {name: st.tuples(st.just("file"), content, mode) for name in THERE},
    optional={
        "new": st.just(("folder",)),
        "l": st.tuples(st.just("link"), source),
        "4": st.tuples(st.just("file"), content, mode),
    },
)
operation = st.one_of(
    st.tuples(st.just("folder"), target, mode.map(lambda m: m | 0o700)),
    st.tuples(st.just("write"), target, content, st.none() | mode),
    st.tuples(st.just("change"), source, content, st.none() | mode),
    st.tuples(st.just("copy"), source, target, st.booleans()),
    st.tuples(st.just("link"), source, target),
    st.tuples(st.just("move"), source, target),
    st.tuples(st.just("stand in"), source, source, target),
)


def build(root: Path, plan: dict[str, tuple]) -> None:
    """The folder of a plan; what does not fit beside what is there already is left out."""
    for name, (kind, *rest) in plan.items():
        place = root / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind == "folder":
                place.mkdir()
            elif kind == "link":
                place.symlink_to(root / rest[0])
            else:
                place.write_bytes(rest[0])
                place.chmod(rest[1])
                os.utime(place, ns=(10**18, 10**18 + len(name)))
        except OSError:
            continue


def made(root: Path, plan: list[tuple]) -> Iterator[Operation]:
    for kind, *rest in plan:
        place = root / rest[0]
        if kind == "folder":
            yield MakeFolder(place, rest[1])
        elif kind == "write":
            yield WriteFile(place, rest[1], rest[2])
        elif kind == "change":  # of the tree as it is before, as a plugin sees it
            held = place.read_bytes() if place.is_file() else b"gone"
            yield WriteFile(place, rest[1], rest[2], hashlib.sha256(held).hexdigest())
        elif kind == "copy":
            yield CopyFile(place, root / rest[1], link=rest[2])
        elif kind == "link":
            yield Symlink(place, root / rest[1])
        elif kind == "stand in":
            yield StandIn(place, root / rest[1], root / rest[2])
        else:
            yield Rename(place, root / rest[1])


@contextmanager
def folder(plan: dict[str, tuple]) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp())
    try:
        build(root, plan)
        (root / "version").write_text("1")
        yield root
    finally:
        shutil.rmtree(root)


def uninstall_all() -> None:
    for record in records():
        assert uninstall(record, None, COMMAND) == ()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tree, st.lists(operation, min_size=1, max_size=5), st.integers(0, 60), st.integers(0, 40))
def test_any(toy: ToyHost, plan, operations, first: int, second: int) -> None:
    with folder(plan) as root:
        before = state(root)
        toy.operations = lambda tools: made(root, operations)
        toy.registered = lambda found: True  # type: ignore[method-assign, assignment]
        (found,) = toy.find(root)
        job = Job(toy, found, "all", root, ["install", "--host", "toy"])

        # to the end, or back
        fits = True
        try:
            install(job)
        except UserError:
            fits = False
            assert state(root) == before
            assert list(records()) == []
        for kind, *_ in operations if fits else [("does not fit",)]:
            event(kind)
        uninstall_all()
        assert state(root) == before

        # stopped, and stopped again while it is taken back
        forked(lambda: install(job), at_change(first, die))
        forked(uninstall_all, at_change(second, die))
        uninstall_all()
        assert state(root) == before
        assert list(records()) == []

        # stopped, and typed again
        forked(lambda: install(job), at_change(second, die))
        try:
            install(job)
        except UserError:
            assert not fits
        else:
            assert fits
        uninstall_all()
        assert state(root) == before

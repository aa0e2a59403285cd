"""Executing a host's steps and taking them back, and comparing trees."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from srhpm_plugin.host import Host, Installation, Mode, Steps, Tools
from srhpm_plugin.install import journal
from srhpm_plugin.install.execute import BACKUP, Executor
from srhpm_plugin.install.places import Places
from srhpm_plugin.install.undo import Undoer

Tree = Mapping[str, tuple[object, ...]]


def _tree(root: Path) -> Tree:
    """Everything below a folder: names, kinds, rights, contents, targets of links."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        at = path.lstat()
        name = path.relative_to(root).as_posix()
        if stat.S_ISLNK(at.st_mode):
            found[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(at.st_mode):
            found[name] = ("folder", stat.S_IMODE(at.st_mode))
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[name] = ("file", stat.S_IMODE(at.st_mode), at.st_mtime_ns, content)
    return found


@pytest.fixture
def tree() -> Callable[[Path], Tree]:
    """``tree(folder)``: all there is below it, for comparing before and after."""
    return _tree


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    """Tools with a drop-in that is a file of ours; it is not run."""
    folder = tmp_path / "tools"
    folder.mkdir()
    dropin = folder / "srhpm-llama-server"
    dropin.write_bytes(b"the drop-in")
    dropin.chmod(0o755)
    state = tmp_path / "state"
    (state / BACKUP).mkdir(parents=True)
    home = Path(os.environ["SRHPM_HOME"])
    return Tools(dropin, Path(sys.executable), home, folder / "b11434-native" / "bin", state)


class Installed:
    """Steps that were executed."""

    def __init__(self, steps: Steps, undo: Callable[[], list[str]], said: list[str]) -> None:
        self.steps = steps
        self.undo = undo
        self.said = said


@pytest.fixture
def install(tools: Tools) -> Callable[[Host, Installation, Mode], Installed]:
    """``install(host, found, mode)`` executes the host's steps by the core's executor; the result's
    ``undo()`` takes them back and returns what there was to say."""

    def run(host: Host, found: Installation, mode: Mode) -> Installed:
        begin = journal.Begin(
            found.host, str(found.root), found.version, found.how, found.facts, found.user,
            None, mode, {}, 0.0, "test",
        )  # fmt: skip
        steps = host.steps(found, tools, mode)
        (tools.state / journal.NAME).unlink(missing_ok=True)
        written = journal.create(tools.state, begin)
        executor = Executor(written, Places(found.root))
        said = [text for step in steps.operations if (text := executor.perform(step))]
        written.close()

        def undo() -> list[str]:
            take_out = getattr(host, "without_us", None)
            undoer = Undoer(tools.state, host.title, take_out=take_out)
            outcomes = [(n, undoer.undo(entry)) for n, entry in written.standing]
            return [outcome.text for _, outcome in outcomes if outcome.text]

        return Installed(steps, undo, said)

    return run

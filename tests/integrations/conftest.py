"""Executing a host's steps and taking them back, and comparing trees."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from trees import Tree, tree_of

from srhpm_plugin.host import Host, Installation, Mode, Steps, Tools
from srhpm_plugin.install import journal
from srhpm_plugin.install.execute import BACKUP, Executor
from srhpm_plugin.install.places import Places
from srhpm_plugin.install.undo import Undoer


@pytest.fixture
def tree() -> Callable[[Path], Tree]:
    """``tree(folder)``: all there is below it, for comparing before and after."""
    return tree_of


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

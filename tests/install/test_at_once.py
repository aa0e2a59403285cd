"""Two installations at the same time, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from crash import die, forked, state
from toy_host import ToyHost

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Tools
from srhpm_plugin.install.lock import one_at_a_time
from srhpm_plugin.install.operations import Operation, WriteFile
from srhpm_plugin.install.state import installs_dir, records
from srhpm_plugin.install.transaction import Job, install, uninstall

posix = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")


HOLD = """
import sys
from pathlib import Path
from srhpm_plugin.install.lock import one_at_a_time
with one_at_a_time(Path(sys.argv[1]), "install --host other"):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_the_second_says_who_is_at_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().strip() == b"ready"
        with (
            pytest.raises(UserError) as caught,
            one_at_a_time(tmp_path, "uninstall --host toy", wait=0.2),
        ):
            raise AssertionError("two at once")
        assert caught.value.line() == (
            f"cannot uninstall: process {process.pid} (srhpm-plugin install --host other) is at it;"
            " wait until it is done, then type: srhpm-plugin uninstall --host toy"
        )
        process.stdin.close()
    with one_at_a_time(tmp_path, "install --host toy", wait=0.2):
        assert json.loads((tmp_path / ".holder").read_text())["pid"] == os.getpid()
    assert not (tmp_path / ".holder").exists()


@posix
def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    def killed() -> None:
        with one_at_a_time(tmp_path, "install --host toy"):
            die()

    assert forked(killed, lambda: None) < 0
    with one_at_a_time(tmp_path, "install --host toy", wait=0.2):
        pass


@posix
def test_many_at_once(toy: ToyHost, job: Callable[..., Job]) -> None:
    """They wait for each other, and the last one's work is what is there."""
    before = state(toy.root)

    def slow(tools: Tools) -> list[Operation]:
        return [WriteFile(toy.root / "empty" / str(n), b"x") for n in range(20)]

    toy.operations = slow  # type: ignore[assignment]
    made = job()
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                install(made)
            except BaseException:
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0, 0, 0, 0]
    (record,) = records()
    assert record.journal is not None
    assert not record.journal.unfinished
    assert uninstall(record, toy, ["uninstall", "--host", "toy"]) == ()
    assert state(toy.root) == before
    assert list(installs_dir().glob("toy-*")) == []

"""``kill -9`` at every step of installing and uninstalling loses nothing."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from crash import at_change, die, forked, half_written, state, until_it_lives
from toy_host import ToyHost

from srhpm_plugin.cli._installs import check_installations
from srhpm_plugin.cli.install import command as install
from srhpm_plugin.cli.uninstall import command as uninstall
from srhpm_plugin.home import data_dir
from srhpm_plugin.install.state import examine, installs_dir, records

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")


def type_install() -> None:
    result = CliRunner().invoke(install, ["--host", "toy"])
    assert result.exit_code == 0, (result.output, result.exception)


def type_uninstall() -> None:
    result = CliRunner().invoke(uninstall, ["--host", "toy"])
    assert result.exit_code == 0, (result.output, result.exception)


def now(toy: ToyHost) -> str:
    """The installation's state in a word, which must be what doctor says too."""
    found = list(records("toy"))
    checks = [c for c in check_installations() if c.name == f"in {toy.title}"]
    if not found:
        assert checks == []
        return "none"
    assert len(found) == len(checks) == 1
    condition = examine(found[0], toy)
    if condition.state == "partly done":
        assert checks[0].state == "broken"
        assert "partly done" in checks[0].detail
        assert checks[0].fix is not None
        assert "--host toy" in checks[0].fix
    return condition.state


@pytest.fixture
def world(toy: ToyHost, tmp_path: Path) -> Callable[[], None]:
    """Puts the host's folder and our state back as they are at the time of the call."""
    saved = tmp_path / "saved"

    def reset() -> None:
        for folder, name in ((toy.root, "host"), (data_dir(), "data")):
            if (saved / name).exists():
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(saved / name, folder, symlinks=True)
            else:
                folder.mkdir(parents=True, exist_ok=True)
                shutil.copytree(folder, saved / name, symlinks=True)
        toy.tally.unlink(missing_ok=True)

    return reset


def without_links(number: int) -> Callable[[], None]:
    """Dies between steps, on a file system that has no hard links."""

    def prepare() -> None:
        def link(*args: object, **named: object) -> None:
            raise PermissionError(errno.EPERM, "Operation not permitted")

        os.link = link
        at_change(number, die)()

    return prepare


DEATHS = pytest.mark.parametrize(
    "death",
    [lambda n: at_change(n, die), without_links, half_written],
    ids=["between steps", "without links", "in a line"],
)
# The host may start its server at any moment.
SERVERS = (b"the host's own server\n", b"srhpm-llama-server")


def server_of(toy: ToyHost) -> bytes:
    """The program in the server's place, which must be whole and can be run at every moment."""
    found = toy.server.read_bytes()
    assert found in SERVERS
    assert os.access(toy.server, os.X_OK)
    return found


@DEATHS
@pytest.mark.parametrize("mend", ["uninstall", "install"])
def test_install_is_killed(toy: ToyHost, world: Callable[[], None], death, mend: str) -> None:
    world()
    before = state(toy.root)
    seen, servers = set(), set()
    for step in until_it_lives(death, type_install):
        servers.add(server_of(toy))
        found = now(toy)
        seen.add(found)
        assert found != "none" or state(toy.root) == before, step
        if mend == "install":
            type_install()
            assert now(toy) == "in place", step
            assert toy.tally.exists()
        type_uninstall()
        assert state(toy.root) == before, step
        assert not toy.tally.exists(), step
        assert list(records()) == []
        world()
    assert "partly done" in seen
    assert servers == set(SERVERS)
    assert now(toy) == "in place"


@DEATHS
@pytest.mark.parametrize("mend", ["uninstall", "install"])
def test_uninstall_is_killed(toy: ToyHost, world: Callable[[], None], death, mend: str) -> None:
    before = state(toy.root)
    type_install()
    world()  # from here on: installed
    seen, servers = set(), set()
    for step in until_it_lives(death, type_uninstall):
        servers.add(server_of(toy))
        seen.add(now(toy))
        if mend == "install":
            type_install()
            assert now(toy) == "in place", step
        type_uninstall()
        assert state(toy.root) == before, step
        assert not toy.tally.exists(), step
        assert list(installs_dir().glob("toy-*")) == []
        world()
        toy.tally.touch()
    assert "partly done" in seen
    assert servers == set(SERVERS)
    assert state(toy.root) == before


@pytest.mark.parametrize("first", [15, 30, 45])
def test_mending_is_killed_too(toy: ToyHost, first: int) -> None:
    """An installation died at a step; the one that is to mend it dies as well, at every third."""
    before = state(toy.root)
    for step in until_it_lives(lambda n: at_change(3 * n, die), type_install):
        type_uninstall()
        assert state(toy.root) == before, step
        assert forked(type_install, at_change(first, die)) == -signal.SIGKILL
        assert now(toy) == "partly done"
    assert now(toy) == "in place"
    type_uninstall()
    assert state(toy.root) == before

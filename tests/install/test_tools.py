"""What an installation puts in place, and whether the host's account can read it."""

from __future__ import annotations

import os
import stat
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_host import ToyHost

from srhpm_plugin import home
from srhpm_plugin.errors import UserError
from srhpm_plugin.install import tools as module
from srhpm_plugin.install.accounts import READ, SEARCH, WRITE, Account
from srhpm_plugin.install.state import records
from srhpm_plugin.install.transaction import Job, install, uninstall

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="permission bits are POSIX'")

OTHER = Account("llm", 54321, frozenset({54321}))


@pytest.fixture
def other(toy: ToyHost, monkeypatch: pytest.MonkeyPatch) -> ToyHost:
    """The host runs as an account that owns nothing."""
    toy.user = "llm"
    monkeypatch.setattr(module, "account", lambda name: OTHER if name == "llm" else None)
    return toy


def test_tools(toy: ToyHost, tools: Path, tmp_path: Path, monkeypatch) -> None:
    (found,) = toy.find(None)
    got = module.find_tools(found, tmp_path / "own", "Toy", [])
    assert got.dropin.name.startswith("srhpm-llama-server")
    assert got.server_folder == tools
    assert got.python == Path(sys.executable)
    assert got.home == Path(os.environ["SRHPM_HOME"])
    monkeypatch.delenv("SRHPM_HOME")
    assert module.find_tools(found, tmp_path / "own", "Toy", []).home is None


def test_an_interpreter_that_finds_us_only_by_its_user(
    toy: ToyHost, tools: Path, tmp_path: Path, monkeypatch
) -> None:
    """The drop-in's ``-I`` leaves out what the account has installed for itself."""
    venv.create(tmp_path / "bare", with_pip=False)
    bare = tmp_path / "bare" / "bin" / "python"
    monkeypatch.setenv("PYTHONPATH", str(Path(module.__file__).parents[2]))
    monkeypatch.setattr(sys, "executable", str(bare))
    (found,) = toy.find(None)
    with pytest.raises(UserError, match=r"does not find srhpm-plugin .* python3 -m venv "):
        module.find_tools(found, tmp_path / "own", "Toy", [])


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "rights", "allowed"),
    [
        (0o600, 1, 2, READ, True),
        (0o066, 1, 2, READ, False),  # the owner has the owner's rights, whatever others have
        (0o040, 9, 2, READ, True),
        (0o604, 9, 2, READ, False),
        (0o004, 9, 9, READ, True),
        (0o774, 9, 9, READ | WRITE, False),
        (0o001, 9, 9, SEARCH, True),
        (0o000, 9, 9, SEARCH, False),
    ],
)
def test_permission_bits(monkeypatch, tmp_path, mode, uid, gid, rights, allowed) -> None:
    at = tmp_path.stat()
    fields = list(at)
    fields[0], fields[4], fields[5] = stat.S_IFREG | mode, uid, gid
    monkeypatch.setattr(Path, "stat", lambda self, **more: os.stat_result(fields))
    assert Account("x", 1, frozenset({2, 3})).may(tmp_path, rights) is allowed
    assert Account("root", 0, frozenset()).may(tmp_path, rights)


def test_what_bars_an_account(tmp_path: Path, monkeypatch) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "file").touch(0o644)
    (tmp_path / "link").symlink_to(inner / "file")
    for folder in (*reversed(tmp_path.parents), tmp_path):
        if not OTHER.may(folder, SEARCH):  # pytest's own folder is private
            assert OTHER.barred(tmp_path / "link", READ) == folder
            folder.chmod(folder.stat().st_mode | 0o011)
    assert OTHER.barred(tmp_path / "link", READ) is None
    (tmp_path / "a").chmod(0o700)
    assert OTHER.barred(inner / "file", READ) == tmp_path / "a"
    assert OTHER.barred(tmp_path / "link", READ) == tmp_path / "a"
    (tmp_path / "a").chmod(0o755)
    assert OTHER.barred(inner / "file", READ | WRITE) == inner / "file"


def test_an_account_that_cannot_read_us(
    other: ToyHost, job: Callable[..., Job], tools: Path, monkeypatch
) -> None:
    """Nothing is done; the commands that mend it are named, whole."""
    monkeypatch.setattr(module, "_package", lambda: "srhpm-plugin")
    for barred in (Path(sys.executable), tools, Path(module.__file__)):
        monkeypatch.setattr(
            Account, "barred", lambda self, path, rights, b=barred: b if path == b else None
        )
        with pytest.raises(UserError) as caught:
            install(job())
        assert caught.value.line() == (
            f"cannot install in Toy Host: it runs as llm, and it cannot read {barred}; put us where"
            " it can: sudo python3 -m venv /opt/srhpm && sudo /opt/srhpm/bin/pip install"
            " srhpm-plugin && sudo env SRHPM_HOME=/var/lib/srhpm /opt/srhpm/bin/srhpm-plugin native"
            " build && sudo env SRHPM_HOME=/var/lib/srhpm /opt/srhpm/bin/srhpm-plugin"
            " install --host toy"
        )
    monkeypatch.delenv("SRHPM_HOME")
    monkeypatch.setattr(home, "require_usable", lambda: None)
    with pytest.raises(UserError, match="its own folders hold no server of ours"):
        module.find_tools(job().found, Path("/x"), "Toy", [])


def test_folders_for_the_account(
    other: ToyHost, job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Account, "barred", lambda self, path, rights: None)
    given: dict[Path, str] = {}
    monkeypatch.setattr("srhpm_plugin.install.disk.give", given.__setitem__)
    install(job())
    launches, plans = home.data_dir() / "launches", home.cache_dir() / "dropin"
    assert given == {launches: "llm", plans: "llm"}
    assert launches.is_dir()
    (launches / "one.json").touch()
    (record,) = records()
    notes = uninstall(record, other, ["uninstall", "--host", "toy"])
    assert notes == (f"{launches} left: it is not empty",)
    assert not plans.exists()
    notes = install(job()).notes
    if OTHER.uid != os.geteuid():
        assert any(f"sudo chown llm {launches}" in note for note in notes)


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root may give files away"
)
def test_owners_are_kept(toy: ToyHost, job: Callable[..., Job]) -> None:
    from crash import state

    for path in (toy.root, *toy.root.rglob("*")):
        os.chown(path, 1234, 2345, follow_symlinks=False)
    os.chown(toy.root / "config.yaml", 1111, 2222)
    before = state(toy.root)
    install(job())
    owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in (toy.root / "new").rglob("*")}
    assert owners == {(1234, 2345)}  # as root nothing of ours is in the host's owner's way
    assert (toy.root / "config.yaml").stat().st_uid == 1111
    (record,) = records()
    uninstall(record, toy, ["uninstall", "--host", "toy"])
    assert state(toy.root) == before

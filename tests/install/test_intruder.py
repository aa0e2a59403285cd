"""A drop-in of ours that this installation did not put there is never kept as the host's server."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_host import EXE, ToyHost

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.install import disk
from srhpm_plugin.install.intruder import refuse
from srhpm_plugin.install.operations import Rename
from srhpm_plugin.install.state import records
from srhpm_plugin.install.transaction import Job, foresee, install, uninstall


@pytest.fixture
def elsewhere(
    toy: ToyHost, job: Callable[..., Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The ``SRHPM_HOME`` of another installation in the toy host."""
    other = tmp_path / "other"
    with monkeypatch.context() as patch:
        patch.setenv("SRHPM_HOME", str(other))
        install(job())
    return other


def test_another_home(toy: ToyHost, job: Callable[..., Job], elsewhere: Path) -> None:
    for act in (foresee, install):
        with pytest.raises(UserError, match="SR-HPM already") as refused:
            act(job())
        assert f"SRHPM_HOME={elsewhere}" in refused.value.why
        assert "srhpm-plugin uninstall --host toy" in (refused.value.do or "")
    assert list(records()) == []


def test_another_home_that_is_gone(toy: ToyHost, job: Callable[..., Job], elsewhere: Path) -> None:
    shutil.rmtree(elsewhere)
    original = toy.server.with_name("llama-server.original")
    with pytest.raises(UserError, match="of no installation that is known here") as refused:
        install(job())
    assert f"move {original} over it" in (refused.value.do or "")
    original.replace(toy.server)
    Note.path_for(toy.server).unlink()
    for path in (toy.root / "new", toy.root / "config.yaml"):
        shutil.rmtree(path) if path.is_dir() else path.write_bytes(b"key: value\n")
    toy.tally.unlink()
    install(job())
    (record,) = records()
    uninstall(record, toy, ["uninstall"])
    assert toy.server.read_bytes() == b"the host's own server\n"


@pytest.mark.parametrize("again", [False, True])
def test_a_drop_in_that_was_changed(
    toy: ToyHost, tools: Path, job: Callable[..., Job], again: bool
) -> None:
    """Signed or stripped it is ours still, and makes way for the host's own server."""
    dropin = tools / f"srhpm-llama-server{EXE}"
    dropin.write_bytes(b"\x7fELF SRHPM_DROPIN_TIMEOUT_MS\0")
    before = sorted(toy.root.rglob("*"))
    install(job())
    toy.server.write_bytes(dropin.read_bytes() + b"signed")
    if again:
        install(job())
        assert toy.server.read_bytes() == dropin.read_bytes()
    (record,) = records()
    assert uninstall(record, toy, ["uninstall"]) == ()
    assert toy.server.read_bytes() == b"the host's own server\n"
    assert sorted(toy.root.rglob("*")) == before


def test_a_host_that_has_none(tmp_path: Path) -> None:
    server = tmp_path / "llama-server"
    server.write_bytes(b"SRHPM_DROPIN_TIMEOUT_MS")
    with pytest.raises(UserError, match="install Toy again"):
        refuse([Rename(server, tmp_path / "kept")], "toy", "Toy", tmp_path)
    server.write_bytes(b"a server")
    refuse([Rename(server, tmp_path / "kept")], "toy", "Toy", tmp_path)
    assert disk.kind(server) == "file"

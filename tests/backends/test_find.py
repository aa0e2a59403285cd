"""Which program a backend runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from srhpm_plugin.backends import stock
from srhpm_plugin.backends.srhpm import SrhpmBackend
from srhpm_plugin.backends.stock import StockBackend, find_stock
from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError

EXE = ".exe" if sys.platform == "win32" else ""


def program(folder: Path, name: str = "llama-server") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}{EXE}"
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _bare(monkeypatch, tmp_path):
    monkeypatch.delenv("SRHPM_SERVER", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(stock, "find_server", lambda: None)


def test_nothing_to_be_found(make_plan, monkeypatch):
    monkeypatch.setattr("srhpm_plugin.backends.srhpm.find_server", lambda: None)
    assert StockBackend().server() is None
    assert SrhpmBackend().server() is None
    with pytest.raises(UserError, match="not built yet; type: srhpm-plugin native build"):
        SrhpmBackend().command(make_plan())
    with pytest.raises(UserError, match="no llama-server on PATH"):
        StockBackend().command(make_plan())


def test_names_are_looked_up_as_text(tmp_path, monkeypatch):
    """On Windows, Python below 3.12 raises for a path that is not a string."""
    look = stock.shutil.which

    def which(command):
        if not isinstance(command, str):
            raise TypeError("argument of type 'WindowsPath' is not iterable")
        return look(command)

    monkeypatch.setattr(stock.shutil, "which", which)
    named = program(tmp_path / "named", "my-server")
    monkeypatch.setenv("SRHPM_STOCK_SERVER", str(named))
    found = find_stock()
    assert found is not None
    assert found.path == named


def test_named_before_path_before_ours(tmp_path, monkeypatch):
    ours = program(tmp_path / "ours")
    monkeypatch.setattr(stock, "find_server", lambda: ours)
    found = find_stock()
    assert found is not None
    assert found.path == ours
    assert "switched off" in found.origin

    on_path = program(tmp_path / "path")
    found = find_stock()
    assert found is not None
    assert (found.path, found.origin) == (on_path, "llama-server on PATH")

    named = program(tmp_path / "named", "my-server")
    monkeypatch.setenv("SRHPM_STOCK_SERVER", str(named))
    found = find_stock()
    assert found is not None
    assert (found.path, found.origin) == (named, "named by SRHPM_STOCK_SERVER")


def test_ours_on_path_is_still_ours(tmp_path, monkeypatch):
    ours = program(tmp_path / "path")
    monkeypatch.setattr(stock, "find_server", lambda: ours)
    found = find_stock()
    assert found is not None
    assert "patched" in found.origin


def test_the_drop_in_on_path_is_no_stock_server(tmp_path):
    dropin = program(tmp_path / "path")
    assert find_stock() is not None
    Note.path_for(dropin).write_bytes(b"")
    assert find_stock() is None


@pytest.mark.parametrize(
    ("variable", "backend"),
    [("SRHPM_STOCK_SERVER", StockBackend), ("SRHPM_SERVER", SrhpmBackend)],
)
def test_variable_that_names_nothing(tmp_path, monkeypatch, variable, backend):
    monkeypatch.setenv(variable, str(tmp_path / "gone"))
    with pytest.raises(UserError, match=variable):
        backend().server()

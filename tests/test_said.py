"""Versions that programs tell."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin import said
from srhpm_plugin.said import said_version

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are scripts")


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """``program(text)``: a shell script."""

    def write(text: str) -> Path:
        path = tmp_path / "program"
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        said._output.cache_clear()
        return path

    return write


@pytest.mark.parametrize("stream", ["", " >&2"])
def test_it_tells(program: Callable[[str], Path], stream: str) -> None:
    tells = program(f'echo starting{stream}; echo "version: $1 4"{stream}')
    assert said_version(tells, r"^version: \S+ (\d+)") == "4"
    assert said_version(tells, r"^version: (\S+)", "-version") == "-version"


def test_it_does_not(
    program: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in (None, tmp_path / "gone", tmp_path, "a\0b"):
        assert said_version(place, "(.)") is None
    assert said_version(program("exit 3"), r"(\d)") is None
    monkeypatch.setattr(said, "_SECONDS", 0.2)
    assert said_version(program("echo 1; exec sleep 30"), r"(\d)") is None


def test_root_starts_only_roots_own(
    program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tells = program("echo 1")
    assert said_version(tells, r"(\d)") == "1"
    other = os.stat_result((0o100755, 0, 0, 1, 1234, 0, 0, 0, 0, 0))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(Path, "stat", lambda self: other)
    assert said_version(tells, r"(\d)") is None

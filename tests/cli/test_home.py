"""A folder for our state that cannot hold any, as a user sees it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Shell = Callable[..., tuple[int, str, str]]


@pytest.fixture(params=["file", "file/below", "read-only"])
def bad_home(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """SRHPM_HOME names a file, something below one, and a place where nobody can write."""
    home = tmp_path / request.param
    if request.param == "read-only":
        if sys.platform != "linux":
            pytest.skip("/proc is where not even root can write")
        home = Path("/proc/srhpm")
    else:
        (tmp_path / "file").touch()
    monkeypatch.setenv("SRHPM_HOME", str(home))
    monkeypatch.delenv("SRHPM_SERVER", raising=False)
    monkeypatch.setattr("srhpm_plugin.native.locate.wheel_build", lambda: None)
    return str(home)


@pytest.mark.parametrize(
    "args", [("native", "info"), ("native", "build", "--dry-run"), ("native", "wheel")]
)
def test_one_line_says_what_is_in_the_way(
    args: tuple[str, ...], bad_home: str, shell: Shell
) -> None:
    code, out, err = shell(*args)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: cannot use SRHPM_HOME={bad_home}: ")
    assert ("is no folder" in err) != ("nothing can be written to" in err)
    assert "SRHPM_HOME=FOLDER" in err
    assert err.count("\n") == 1

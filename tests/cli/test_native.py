"""``native wheel`` as a user sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.cli import native
from srhpm_plugin.native.locate import INFO_NAME

Shell = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("portable", [True, False])
def test_a_wheel_for_this_processor_alone_is_called_so(
    portable: bool, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / INFO_NAME).write_text(json.dumps({"portable": portable}))
    monkeypatch.setattr(native, "local_build", lambda: tmp_path)
    monkeypatch.setattr(native, "make_wheel", lambda folder, out: out / "x.whl")
    code, out, err = shell("native", "wheel", "--out", tmp_path)
    assert (code, out) == (0, f"wheel: {tmp_path / 'x.whl'}\n")
    assert ("native build --portable" in err) != portable

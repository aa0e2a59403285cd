"""A real model, damaged in every named way, gives one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import is_gguf, read_model


def test_each_kind_is_refused_by_name(damaged_gguf: tuple[Path, str]) -> None:
    path, message = damaged_gguf
    with pytest.raises(UserError) as caught:
        read_model(path)
    line = caught.value.line()
    assert message in line
    assert str(path) in line
    assert caught.value.do
    assert "\n" not in line


def test_magic_decides_what_is_a_gguf(damaged_gguf: tuple[Path, str]) -> None:
    path, _ = damaged_gguf
    with path.open("rb") as file:
        assert is_gguf(path) == (file.read(4) == b"GGUF")

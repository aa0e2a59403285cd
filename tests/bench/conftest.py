"""Stand-ins for the native programs: small scripts."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a Python program that can be started by its path."""
    if sys.platform == "win32":
        pytest.skip("a text file is no program on Windows")

    def write(text: str, name: str = "program") -> Path:
        path = tmp_path / name
        path.write_text(f"#!{sys.executable}\nimport json, os, sys\n{text}")
        path.chmod(0o755)
        return path

    return write

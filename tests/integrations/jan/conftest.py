"""Jan's data folder as it lies on a disk, with contents invented here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


class Data:
    """A data folder of Jan's in the making.

    Attributes:
        path: the folder.
    """

    def __init__(self, path: Path, version: str | None) -> None:
        self.path = path
        self.backends = path / "llamacpp" / "backends"
        (path / "llamacpp" / "models").mkdir(parents=True)
        if version is not None:
            (path / "store.json").write_text(json.dumps({"version": version}))

    def backend(self, tag: str, name: str, layout: str = "build/bin") -> Path:
        """Adds a backend; the path of its server."""
        folder = self.backends / tag / name / layout
        folder.mkdir(parents=True)
        server = folder / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
        server.write_bytes(f"the server of {tag}/{name}".encode())
        server.chmod(0o755)
        (folder / "libggml.so").write_bytes(b"a library")
        (self.backends / tag / name / "LICENSE").write_text("its licence")
        return server

    def model(self, name: str, text: str, content: bytes = b"GGUF\3\0\0\0" + bytes(64)) -> Path:
        """Adds a model with its description; the path of its file."""
        folder = self.path / "llamacpp" / "models" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.yml").write_text(text)
        (folder / "model.gguf").write_bytes(content)
        return folder / "model.gguf"


@pytest.fixture
def make_data() -> Callable[..., Data]:
    """``make_data(path, version)``."""
    return Data


@pytest.fixture
def data(tmp_path: Path) -> Data:
    """Jan 0.8.4 with a CPU and a CUDA backend, the CPU one also of an older tag."""
    made = Data(tmp_path / "Jan" / "data", "0.8.4")
    made.backend("b6929", "linux-common_cpus-x64")
    made.backend("b9967", "linux-common_cpus-x64")
    made.backend("b9967", "linux-cuda-12-common_cpus-x64")
    return made

"""Copies of Ollama as its installers lay them out, and stores."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from ollama_store import Shelf

EXE = ".exe" if sys.platform == "win32" else ""


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this machine's own Ollama: no program, service, address or models."""
    from srhpm_plugin.integrations.ollama import layout, service

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin-of-nothing"))
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(layout, "_BINARIES", ())
    monkeypatch.setattr(service, "FOLDERS", (tmp_path / "etc", tmp_path / "lib-systemd"))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty store."""
    return Shelf(tmp_path / "models")


@pytest.fixture
def copy() -> Callable[..., Path]:
    """``copy(root)`` lays out a copy with ``bin/ollama`` and ``lib/ollama`` and returns ``root``.

    Args (of the function): ``version`` is what the program says; ``server``: there is a
    llama-server, as from 0.30 on; ``program`` and ``lib``: where they lie below ``root``.
    """

    def lay_out(
        root: Path,
        version: str = "0.33.0",
        server: bool = True,
        program: str = "bin/ollama",
        lib: str = "lib/ollama",
    ) -> Path:
        place = root / (program + EXE)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(
            '#!/bin/sh\ntest "$OLLAMA_HOST" = 127.0.0.1:1 || exit 3\n'
            "echo 'Warning: could not connect to a running Ollama instance'\n"
            f"echo 'Warning: client version is {version}'\n"
        )
        place.chmod(0o755)
        folder = root / lib
        (folder / "cuda_v13").mkdir(parents=True)
        (folder / "cuda_v13" / "libggml-cuda.so").write_bytes(b"a GPU library")
        (folder / "libggml-base.so.0").write_bytes(b"a library")
        if server:
            for name in ("llama-server", "llama-quantize"):
                (folder / (name + EXE)).write_bytes(f"Ollama's {name} {version}".encode())
                (folder / (name + EXE)).chmod(0o755)
        return root

    return lay_out

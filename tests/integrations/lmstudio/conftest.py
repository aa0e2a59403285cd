"""LM Studio's folders as they lie on a disk, with contents invented here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

KINDS: dict[str, dict[str, Any] | None] = {
    "avx2": None,
    "nvidia-cuda12-avx2": {"make": "Nvidia", "framework": "CUDA", "targets": ["8.9"]},
    "vulkan-avx2": {"make": "", "framework": "Vulkan"},
}


class Home:
    """An LM Studio home in the making.

    Attributes:
        path: the folder.
        system: ``linux`` or ``win``.
    """

    def __init__(self, path: Path, system: str) -> None:
        self.path, self.system = path, system
        self.exe = ".exe" if system == "win" else ""
        self.backends = path / "extensions" / "backends"
        self.backends.mkdir(parents=True)
        (path / ".internal").mkdir()
        (path / "models").mkdir()

    def name(self, kind: str) -> str:
        """Name of the stock pack of a kind."""
        return f"llama.cpp-{self.system}-x86_64-{kind}"

    def pack(self, kind: str, version: str, **changed: Any) -> Path:
        """Adds a pack; ``changed`` replaces members of its manifest (``None`` removes one)."""
        folder = self.backends / f"{self.name(kind)}-{version}"
        folder.mkdir()
        server = f"llama-server{self.exe}"
        libraries = (
            ["llama.dll", "ggml-base.dll", "llm_engine.dll", "llama-server-impl.dll"]
            if self.system == "win"
            else ["libllama.so.0", "libggml-base.so.0", "llm_engine.node"]
        )
        for library in libraries:
            (folder / library).write_bytes(f"{kind} {version} {library}".encode())
        if self.system != "win" and sys.platform != "win32":
            (folder / "libllama.so").symlink_to("libllama.so.0")
        (folder / "data").mkdir()
        (folder / "data" / "notes.txt").write_text("inner")
        (folder / server).write_bytes(b"the stock server")
        (folder / server).chmod(0o755)
        manifest: dict[str, Any] = {
            "name": self.name(kind),
            "version": version,
            "engine": "llama.cpp",
            "platform": self.system,
            "extension_type": "engine",
            "domains": ["llm", "embedding"],
            "minimum_lmstudio_version": "0.4.0+15",
            "cpu": {"architecture": "x86_64", "instruction_set_extensions": ["AVX2"]},
            "supported_model_formats": ["gguf"],
            "vendor_lib_package_names": ["linux-llama-cuda12-vendor-v1"],
            "target_libraries": [{"name": libraries[-1]}],
            "engine_protocol_server": {
                "runtime_kind": "llama-server",
                "executable_relative_path": server,
                "unknown_to_us": True,
            },
            "unknown_to_us": {"keep": [1, 2, "\ud800"]},
        }
        if KINDS[kind] is not None:
            manifest["gpu"] = KINDS[kind]
        manifest.update(changed)
        manifest = {key: value for key, value in manifest.items() if value is not None}
        files = [{"relative_path": name, "executable": name == server} for name in libraries]
        artifacts = {
            "schema_version": 1,
            "runtime_kind": "llama-server",
            "executable_relative_path": server,
            "files": [*files, {"relative_path": server, "executable": True}],
        }
        notes = [{"version": version, "releaseNotes": "- faster"}]
        display = [
            [lang, {"langKey": lang, "displayName": f"{kind} llama.cpp", "releaseNotes": notes}]
            for lang in ("en", "de")
        ]
        for file, data in (
            ("backend-manifest.json", manifest),
            ("engine-protocol-server-artifacts.json", artifacts),
            ("display-data.json", display),
        ):
            (folder / file).write_text(json.dumps(data))
        return folder

    def choose(self, kind: str, version: str) -> Path:
        """Selects a pack for GGUF models, as LM Studio writes it."""
        path = self.path / ".internal" / "backend-preferences-v1.json"
        entries = [
            {"model_format": "gguf", "name": self.name(kind), "version": version},
            {"model_format": "safetensors", "name": "mlx-llm", "version": "1.2.3"},
        ]
        path.write_text(json.dumps(entries))
        return path


@pytest.fixture
def make_home(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Home]:
    """``make_home(path, system)``; the host's plugin then takes this for that system."""

    def make(path: Path, system: str = "win" if sys.platform == "win32" else "linux") -> Home:
        monkeypatch.setattr("srhpm_plugin.integrations.lmstudio.pack.platform", lambda: system)
        monkeypatch.setattr("srhpm_plugin.integrations.lmstudio.platform", lambda: system)
        return Home(path, system)

    return make


@pytest.fixture
def home(tmp_path: Path, make_home: Callable[..., Home]) -> Home:
    """A home with a CPU and a CUDA pack, each in two versions, and a backup of one."""
    made = make_home(tmp_path / "user" / ".lmstudio")
    for kind in ("avx2", "nvidia-cuda12-avx2"):
        made.pack(kind, "2.9.0")
        made.pack(kind, "2.31.2")
    backup = made.pack("avx2", "2.40.0")
    backup.rename(backup.with_name(backup.name + ".backup"))
    (made.backends / "vendor" / "linux-llama-cuda12-vendor-v1").mkdir(parents=True)
    made.choose("nvidia-cuda12-avx2", "2.9.0")
    return made

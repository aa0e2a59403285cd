"""LM Studio's runtime packs: reading them, and which of them ours can be made of.

A pack is a folder ``extensions/backends/<name>-<version>`` with a ``backend-manifest.json``. Since
0.4 the manifest's ``engine_protocol_server`` names a ``llama-server`` that LM Studio starts as a
child process. None of this is documented by the vendor; the fields are those that independent
projects found on real installations (docs/hosts/lm-studio.md).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srhpm_plugin.untrusted import inside, items, read_json, text

from .places import BACKENDS, preferences

MANIFEST = "backend-manifest.json"
ARTIFACTS = "engine-protocol-server-artifacts.json"
DISPLAY = "display-data.json"
SUFFIX = "-srhpm"
"""Ends the name of our packs."""
FOLDER = "srhpm"
"""The folder inside our packs that holds the drop-in."""

_NAME = re.compile(r"llama\.cpp-[A-Za-z0-9._-]{1,100}")
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,3}")
_PLATFORMS = {"linux": "linux", "win32": "win", "darwin": "mac"}


def platform() -> str:
    """This system as manifests call it."""
    return _PLATFORMS.get(sys.platform, sys.platform)


@dataclass(frozen=True)
class Pack:
    """A runtime pack that LM Studio counts as installed.

    Attributes:
        folder: where it lies; called ``<name>-<version>``.
        server: the program LM Studio starts, relative to ``folder``; ``None`` when the pack is too
            old to start one.
        gpu: the GPU framework, e.g. ``CUDA``; ``None`` for a CPU pack.
        manifest: its manifest with everything in it.
    """

    folder: Path
    name: str
    version: str
    server: str | None
    gpu: str | None
    manifest: Mapping[str, Any]

    @property
    def ours(self) -> bool:
        """Made by us."""
        return self.name.endswith(SUFFIX)

    @property
    def order(self) -> tuple[int, ...]:
        """Sorts versions."""
        return tuple(map(int, self.version.split(".")))

    @property
    def label(self) -> str:
        """As ``lms runtime`` names it."""
        return f"{self.name}@{self.version}"

    def unfit(self) -> str | None:
        """Why ours cannot be made of it; ``None`` if it can."""
        if self.manifest.get("platform") not in (platform(), None):
            return f"it is for {self.manifest.get('platform')}"
        if "gguf" not in items(self.manifest, "supported_model_formats"):
            return "it runs no GGUF models"
        if self.server is None:
            return "it is too old: it starts no llama-server (no engine_protocol_server)"
        if self.server not in ("llama-server", "llama-server.exe"):
            return "it is not LM Studio's own: its server lies elsewhere"
        server = inside(self.folder, self.server)
        if server is None or not server.is_file():
            return "its llama-server is missing"
        return None


def packs(home: Path) -> list[Pack]:
    """All packs of the engine llama.cpp, newest first.

    LM Studio takes every folder with a manifest for a pack, a backup copy too. Only one that is
    called as its manifest says is listed here.
    """
    try:
        folders = sorted(p for p in (home / BACKENDS).iterdir() if p.is_dir())
    except OSError:
        return []
    found = [pack for folder in folders if (pack := _read(folder))]
    return sorted(found, key=lambda pack: (pack.order, pack.gpu is None, pack.name), reverse=True)


def _read(folder: Path) -> Pack | None:
    path = inside(folder, MANIFEST)
    try:
        manifest = read_json(path) if path else None
    except (OSError, ValueError):
        return None
    name, version = text(manifest, "name"), text(manifest, "version")
    if (
        not isinstance(manifest, dict)
        or not name
        or not version
        or text(manifest, "engine") != "llama.cpp"
        or not _NAME.fullmatch(name)
        or not _VERSION.fullmatch(version)
        or folder.name != f"{name}-{version}"
    ):
        return None
    kind = text(manifest, "engine_protocol_server", "runtime_kind")
    server = text(manifest, "engine_protocol_server", "executable_relative_path")
    return Pack(
        folder,
        name,
        version,
        server if kind == "llama-server" else None,
        text(manifest, "gpu", "framework"),
        manifest,
    )


@dataclass(frozen=True)
class Selection:
    """The runtime that is selected for GGUF models."""

    name: str
    version: str

    @property
    def label(self) -> str:
        """As ``lms runtime`` names it."""
        return f"{self.name}@{self.version}"


def selected(home: Path) -> Selection | None:
    """What the user has selected, as LM Studio last wrote it."""
    path = preferences(home)
    try:
        entries = read_json(path) if path else ()
    except (OSError, ValueError):
        return None
    for entry in entries if isinstance(entries, list) else ():
        name, version = text(entry, "name"), text(entry, "version")
        if text(entry, "model_format") != "gguf" or not name or not version:
            continue
        # Both go into a command line.
        if _NAME.fullmatch(name) and _VERSION.fullmatch(version):
            return Selection(name, version)
    return None


def source(home: Path) -> Pack | str:
    """The pack that ours is made of, or why there is none.

    The newest version of what is selected; where nothing is, the newest of all, a CPU pack first.
    """
    stock = [pack for pack in packs(home) if not pack.ours]
    fit = [pack for pack in stock if pack.unfit() is None]
    choice = selected(home)
    wanted = choice.name.removesuffix(SUFFIX) if choice else None
    for pack in fit:
        if pack.name == wanted:
            return pack
    if fit:
        return fit[0]
    if stock:
        return f"{stock[0].label} cannot be used: {stock[0].unfit()}"
    return "no llama.cpp runtime is installed"

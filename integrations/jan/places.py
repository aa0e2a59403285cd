"""Where Jan keeps its data, which version it is, and the llama.cpp backends it has.

Facts (janhq/jan, ``core/app/commands.rs``, ``core/setup.rs``, ``tauri-plugin-llamacpp``): the
data folder is named by ``JAN_DATA_FOLDER`` or in ``Jan/settings.json`` below the user's data
folder, else it is ``Jan/data`` there; ``store.json`` in it holds the version that last started; a
backend is ``llamacpp/backends/<version>/<backend>`` with ``build/bin/llama-server`` or
``llama-server``.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.files import expand
from srhpm_plugin.untrusted import inside, read_bytes, read_json, text

BACKENDS = Path("llamacpp", "backends")
MARK = "srhpm"
"""What our backends have in their name."""
_LAYOUTS = (Path("build", "bin"), Path())
_TAG = re.compile(r"b(\d{1,7})(?:-[a-f0-9]+)?")
_SYSTEMS = {"linux": "linux", "win32": "win", "darwin": "macos"}
_GPU = ("cuda", "vulkan", "hip", "rocm", "sycl")


def data_folders(path: Path | None) -> Iterator[Path]:
    """Data folders with something in them, each once.

    Args:
        path: only this one, or the one below it.
    """
    seen: set[Path] = set()
    for folder in _named(path) if path else _usual():
        try:
            here = (folder / "llamacpp").is_dir() or (folder / "store.json").is_file()
            real = folder.resolve()
        except (OSError, RuntimeError, ValueError):
            continue
        if here and real not in seen:
            seen.add(real)
            yield folder


def _named(path: Path) -> tuple[Path, ...]:
    path = expand(path).absolute()
    return path, path / "data"


def _usual() -> Iterator[Path]:
    named = os.environ.get("JAN_DATA_FOLDER")
    if named:
        yield Path(named).absolute()
    bases = list(_user_data())
    for base in bases:
        try:
            folder = text(read_json(base / "Jan" / "settings.json"), "data_folder")
        except (OSError, ValueError):
            continue
        # The user's own choice: it may lie anywhere.
        if folder and "\0" not in folder and Path(folder).is_absolute():
            yield Path(folder)
    for base in bases:
        yield base / "Jan" / "data"


def _user_data() -> Iterator[Path]:
    user = Path.home()
    if sys.platform == "win32":
        yield Path(os.environ.get("APPDATA") or user / "AppData" / "Roaming")
    elif sys.platform == "darwin":
        yield user / "Library" / "Application Support"
    else:
        yield Path(os.environ.get("XDG_DATA_HOME") or user / ".local" / "share")
        yield Path(os.environ.get("XDG_CONFIG_HOME") or user / ".config")  # of older versions


def version(data: Path) -> str | None:
    """The version that last started with this data folder."""
    try:
        return text(read_json(data / "store.json"), "version")
    except (OSError, ValueError):
        return None


def numbers(version: str) -> tuple[int, ...] | None:
    """``0.8.4`` as numbers; what follows them (``-beta``) is not looked at."""
    found = re.match(r"(\d{1,5})\.(\d{1,5})\.(\d{1,5})", version)
    return tuple(map(int, found.groups())) if found else None


@dataclass(frozen=True)
class Backend:
    """An installed llama.cpp backend of Jan's, or ours.

    Attributes:
        folder: ``<backends>/<tag>/<name>``.
        tag: the llama.cpp tag, ``bNNNN``; Jan chooses the spelling of flags by it.
        server: its ``llama-server``.
    """

    folder: Path
    tag: str
    name: str
    server: Path

    @property
    def ours(self) -> bool:
        """Made by us."""
        return f"-{MARK}-" in self.name

    @property
    def label(self) -> str:
        """As Jan's list shows it."""
        return f"{self.tag}/{self.name}"

    @property
    def order(self) -> tuple[int, bool, str]:
        """Newest first when sorted downwards; a GPU's before the CPU's of the same tag."""
        number = _TAG.fullmatch(self.tag)
        return int(number[1]) if number else 0, any(g in self.name for g in _GPU), self.name


def backends(data: Path) -> list[Backend]:
    """What Jan would list as installed and we can use, best first."""
    root = data / BACKENDS
    found: list[Backend] = []
    try:
        folders = sorted(root.glob("*/*"))[:1000]
    except OSError:
        return found
    for folder in folders:
        tag, name = folder.parent.name, folder.name
        if not _TAG.fullmatch(tag) or inside(root, f"{tag}/{name}") is None:
            continue
        for layout in _LAYOUTS:
            server = inside(folder, (layout / program()).as_posix())
            if server is not None and server.is_file():
                found.append(Backend(folder, tag, name, server))
                break
    return sorted(found, key=lambda backend: backend.order, reverse=True)


def program() -> str:
    """The server's file name."""
    return "llama-server.exe" if sys.platform == "win32" else "llama-server"


def own_name(machine: str) -> str:
    """What our backend is called: no word in it that Jan would take for a GPU's or a CPU's kind."""
    arch = "arm64" if machine.lower() in ("arm64", "aarch64") else "x64"
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{MARK}-{arch}"


def note_of(backend: Backend) -> Note | None:
    """The note of the drop-in in a backend of ours, if it is whole."""
    try:
        return Note.parse(read_bytes(Note.path_for(backend.server), 65536))
    except (OSError, ValueError):
        return None

"""Where the built programs are: named by the user, built here, or from the wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

from ..errors import UserError
from ..files import expand
from ..home import data_dir

EXE = ".exe" if sys.platform == "win32" else ""
INFO_NAME = "srhpm-native.json"


def builds_dir() -> Path:
    """Folder of installed builds; ``current`` in it names the one in use."""
    return data_dir() / "native"


def local_build() -> Path | None:
    """Folder of the build in use that was made on this machine."""
    pointer = builds_dir() / "current"
    try:
        name = pointer.read_text("utf-8").strip()
    except OSError:
        return None
    folder = builds_dir() / name
    # The pointer holds a bare folder name; anything else was not written by us.
    if not name or Path(name).name != name or not (folder / INFO_NAME).is_file():
        return None
    return folder


def wheel_build() -> Path | None:
    """Folder of the build inside the installed wheel ``srhpm-native``."""
    spec = importlib.util.find_spec("srhpm_native")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))) / "build"
    return folder if (folder / INFO_NAME).is_file() else None


def build_info(folder: Path) -> dict[str, object]:
    """What a build says of itself; an unreadable file counts as saying nothing."""
    try:
        info = json.loads((folder / INFO_NAME).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def find_build() -> Path | None:
    """The build to use: one made here, else the wheel's.

    A local build comes first because it is compiled for this very processor.
    """
    return local_build() or wheel_build()


def find_program(name: str) -> Path | None:
    """Path of one of the built programs, e.g. ``llama-quantize``.

    ``SRHPM_SERVER`` names a server program directly; its siblings are looked for beside it.

    Raises:
        UserError: ``SRHPM_SERVER`` is set and is no file.
    """
    named = os.environ.get("SRHPM_SERVER")
    if named:
        server = expand(named)
        if not server.is_file():
            raise UserError(
                "no server program", f"SRHPM_SERVER names {server}, which is no file", "unset it"
            )
        program = server if name == "llama-server" else server.with_name(name + EXE)
        return program if program.is_file() else None
    folder = find_build()
    if folder is None:
        return None
    program = folder / "bin" / (name + EXE)
    return program if program.is_file() else None


def find_server() -> Path | None:
    """The patched ``llama-server``, or ``None`` before the first build."""
    return find_program("llama-server")

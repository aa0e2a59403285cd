"""Where the built programs are: named by the user, built here, or from the wheel."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..files import expand
from ..home import data_dir

EXE = ".exe" if sys.platform == "win32" else ""
INFO_NAME = "srhpm-native.json"
_FOR = "for-"  # a file that names the build for a host
_HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


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
    return _installed(name)


def _installed(name: str) -> Path | None:
    """The build of that name; pointers hold bare folder names, anything else is not ours."""
    folder = builds_dir() / name
    bare = name not in ("", ".", "..") and Path(name).name == name
    if not bare or not (folder / INFO_NAME).is_file():
        return None
    return folder


def installed_builds() -> list[Path]:
    """All builds that were made on this machine."""
    return sorted(info.parent for info in builds_dir().glob(f"[!.]*/{INFO_NAME}"))


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


@dataclass(frozen=True)
class HostBuild:
    """A build made for a host, so that it can load the host's GPU libraries.

    Attributes:
        folder: the build.
        says: the version line of the host's own server then.
    """

    folder: Path
    says: str


def host_build(host: str) -> HostBuild | None:
    """The build made for ``host``, if it is still there."""
    try:
        data = json.loads(_host_pointer(host).read_text("utf-8"))
        build, says = data["build"], data["says"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    folder = _installed(build) if isinstance(build, str) and isinstance(says, str) else None
    return HostBuild(folder, says) if folder else None


def set_host_build(host: str, build: HostBuild) -> None:
    """Makes a build the one for ``host``."""
    pointer = _host_pointer(host)
    partial = pointer.with_name(pointer.name + ".partial")
    partial.write_text(json.dumps({"build": build.folder.name, "says": build.says}), "utf-8")
    partial.replace(pointer)


def hosts_with_builds() -> dict[str, str]:
    """The hosts that builds were made for, each with the name of its build."""
    found = {}
    for pointer in sorted(builds_dir().glob(f"{_FOR}*")):
        host = pointer.name.removeprefix(_FOR)
        if build := host_build(host):
            found[host] = build.folder.name
    return found


def _host_pointer(host: str) -> Path:
    if not _HOST_NAME.fullmatch(host):
        raise ValueError(f"no host can be called {host!r}")
    return builds_dir() / (_FOR + host)


_serving: ContextVar[str | None] = ContextVar("serving", default=None)


def serve(host: str | None) -> None:
    """From now on this process works for ``host``: a build made for it comes first."""
    _serving.set(host)


def find_build() -> Path | None:
    """The build to use: one made for the host that is served, one made here, else the wheel's.

    A local build comes before the wheel's because it is compiled for this very processor.
    """
    host = _serving.get()
    special = host_build(host) if host is not None and _HOST_NAME.fullmatch(host) else None
    return special.folder if special else local_build() or wheel_build()


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

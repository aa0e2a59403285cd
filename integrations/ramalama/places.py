"""Where RamaLama is installed and where it keeps its models.

Facts (RamaLama 0.25.0): runtimes are entry points of the group ``ramalama.runtimes.v1alpha`` that
its own Python environment has; the store is ``<store>/store``, where ``<store>`` is named by
``RAMALAMA_STORE`` or ``ramalama.conf``, else ``/var/lib/ramalama`` for root and ``ramalama`` in
the user's data folder. Installers make an environment of its own (pipx, uv, brew, the project's
``install.sh``) or use the system's.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from srhpm_plugin.files import expand
from srhpm_plugin.untrusted import member, read_bytes, text

GROUP = "ramalama.runtimes.v1alpha"
_PACKAGES = (
    "lib/python3.*/site-packages",
    "Lib/site-packages",
    "lib/python3/dist-packages",
    "lib/python3.*/dist-packages",
    "local/lib/python3.*/dist-packages",
)
_DIST = re.compile(r"ramalama-(\d[^-]*)\.dist-info")


@dataclass(frozen=True)
class Found:
    """A RamaLama.

    Attributes:
        packages: folder of the Python packages it is among.
        version: of its package.
        pluggable: it takes runtimes of others.
    """

    packages: Path
    version: str
    pluggable: bool


def environments(path: Path | None) -> Iterator[Found]:
    """Each once, the one on the user's ``PATH`` first.

    Args:
        path: only this environment, folder of packages, or the one of this program.
    """
    seen: set[Path] = set()
    for folder in _folders(path):
        try:
            real = folder.resolve()
            found = None if real in seen else _in(real)
        except (OSError, RuntimeError, ValueError):
            continue
        seen.add(real)
        if found is not None:
            yield found


def _in(packages: Path) -> Found | None:
    for folder in sorted(packages.glob("ramalama-*.dist-info")):
        version = _DIST.fullmatch(folder.name)
        if version and (packages / "ramalama").is_dir():
            try:
                points = read_bytes(folder / "entry_points.txt", 65536).decode()
            except (OSError, ValueError):
                points = ""
            return Found(packages, version[1], f"[{GROUP}]" in points)
    return None


def _folders(path: Path | None) -> Iterator[Path]:
    if path is not None:
        path = expand(path).absolute()
        yield path
        yield from _below(path)
        if path.is_file():
            yield from _of_program(path)
        return
    program = shutil.which("ramalama")
    if program:
        yield from _of_program(Path(program))
    user = Path.home()
    data = Path(os.environ.get("XDG_DATA_HOME") or user / ".local" / "share")
    tools = (
        data / "pipx" / "venvs" / "ramalama",
        user / ".local" / "pipx" / "venvs" / "ramalama",
        user / "pipx" / "venvs" / "ramalama",
        data / "uv" / "tools" / "ramalama",
        Path(sys.prefix),
    )
    for tool in tools:
        yield from _below(tool)


def _below(prefix: Path) -> Iterator[Path]:
    for pattern in _PACKAGES:
        yield from sorted(prefix.glob(pattern))


def _of_program(program: Path) -> Iterator[Path]:
    """By the Python that the program starts, and by where it lies: links first as they are."""
    for place in dict.fromkeys((program.resolve(), program)):
        yield from _below(place.parent.parent)
        try:
            first = read_bytes(place, 1 << 20)[:512].split(b"\n", 1)[0].decode()
        except (OSError, ValueError):
            continue
        python = re.match(r"#!\s*(\S+)", first)
        if python and Path(python[1]).is_absolute():
            yield from _below(Path(python[1]).parent.parent)


def store() -> Path:
    """The folder of the models."""
    named = os.environ.get("RAMALAMA_STORE") or _configured()
    if named and "\0" not in named:
        return expand(Path(named)) / "store"
    if sys.platform != "win32" and os.geteuid() == 0:
        return Path("/var/lib/ramalama/store")
    data = os.environ.get("XDG_DATA_HOME")
    return (Path(data) if data else Path.home() / ".local" / "share") / "ramalama" / "store"


def _configured() -> str | None:
    """``store`` of the user's ``ramalama.conf``; a folder of the user's own choice."""
    config = os.environ.get("XDG_CONFIG_HOME")
    folder = Path(config) if config else Path.home() / ".config"
    named = os.environ.get("RAMALAMA_CONFIG")
    path = expand(Path(named)) if named else folder / "ramalama" / "ramalama.conf"
    try:
        data = tomlkit.parse(read_bytes(path, 1 << 20).decode()).unwrap()
    except (OSError, ValueError, TOMLKitError):
        return None
    return text(member(data, "ramalama"), "store")

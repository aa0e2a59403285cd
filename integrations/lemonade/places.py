"""Where Lemonade keeps its settings and its llama.cpp builds.

Facts (lemonade e385039e, 11.7.0: ``utils/platform/path_*.cpp``, ``data/lemond.service.in``): the
packages for Linux run ``lemond`` as ``lemonade`` with ``/var/lib/lemonade`` and
``/var/cache/lemonade``; else both lie in the user's folders, on macOS in
``/Library/Application Support/lemonade``. A llama.cpp build is any folder tree below
``<cache>/bin/llamacpp/<backend>`` with a ``llama-server`` in it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from srhpm_plugin.files import expand
from srhpm_plugin.said import said_version
from srhpm_plugin.untrusted import inside

_SERVICE = Path("/var/lib/lemonade")
BACKENDS = {
    "cpu": ("cpu",),
    "vulkan": ("vulkan",),
    "cuda": ("cuda",),
    "rocm": ("rocm-stable", "rocm-nightly"),
}
"""For each backend whose program can be set the folders of its builds."""
NAME = "llama-server.exe" if sys.platform == "win32" else "llama-server"
_DEEPEST, _MOST = 5, 2000


def version() -> str | None:
    """Of the Lemonade whose command is on the ``PATH``."""
    return said_version(shutil.which("lemonade"), r"^lemonade version (\d\S*)")


@dataclass(frozen=True)
class Folders:
    """Folders of one Lemonade.

    Attributes:
        config: holds ``config.json``.
        cache: holds what it fetched.
        user: the account it runs as, when it is a service.
    """

    config: Path
    cache: Path
    user: str | None = None


def folders(path: Path | None) -> Iterator[Folders]:
    """Each Lemonade that has a configuration folder."""
    seen: set[Path] = set()
    for one in _named(path) if path else _usual():
        try:
            real = one.config.resolve()
            here = one.config.is_dir()
        except (OSError, RuntimeError, ValueError):
            continue
        if here and real not in seen:
            seen.add(real)
            yield one


def _named(path: Path) -> Iterator[Folders]:
    path = expand(path).absolute()
    config = path.parent if path.name == "config.json" else path
    if config == _SERVICE:
        yield from _usual()
    elif config.parent.name == ".config":
        yield Folders(config, config.parent.parent / ".cache" / config.name)
    else:
        yield Folders(config, _cache())


def _usual() -> Iterator[Folders]:
    if sys.platform == "linux" and _SERVICE.is_dir():
        yield Folders(_SERVICE, Path("/var/cache/lemonade"), "lemonade")
    if sys.platform == "darwin":
        base = Path("/Library/Application Support/lemonade")
        yield Folders(base / ".config", base / ".cache")
    config = None if sys.platform == "win32" else os.environ.get("XDG_CONFIG_HOME")
    folder = Path(config) if config else Path.home() / ".config"
    yield Folders(folder / "lemonade", _cache())


def _cache() -> Path:
    named = os.environ.get("LEMONADE_CACHE_DIR")
    if named:
        return Path(named).absolute()
    cache = None if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "lemonade"


def built(cache: Path, backend: str) -> Path | None:
    """Lemonade's own ``llama-server`` of a backend, if it has fetched one."""
    for name in BACKENDS[backend]:
        root = cache / "bin" / "llamacpp" / name
        left, pending = _MOST, [(root, 0)]
        while pending and left > 0:
            folder, depth = pending.pop()
            left -= 1
            server = folder / NAME
            if server.is_file():
                relative = server.relative_to(root).as_posix()
                return server if inside(root, relative) is not None else None
            try:
                inner = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
            except OSError:
                continue
            if depth < _DEEPEST:
                pending += [(p, depth + 1) for p in reversed(inner)]
    return None

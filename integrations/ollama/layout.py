"""Where copies of Ollama lie, and where in them it looks for its ``llama-server``.

Ollama's own rules (``ml/path.go``, ``llm/llama_binary.go``): the folder is found from the program's
path with links resolved, and the first ``llama-server`` there is started; nothing else can name it.
"""

from __future__ import annotations

import os
import platform
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from srhpm_plugin.files import expand

_EXE = ".exe" if sys.platform == "win32" else ""
PROGRAM = f"ollama{_EXE}"
SERVER = f"llama-server{_EXE}"
KEPT = f"{SERVER}.srhpm-original"
"""What Ollama's own server is called while ours stands in for it; the drop-in knows the ending.

It stays in its folder, as it loads its libraries from there. Ollama finds servers by their exact
name and GPU libraries by ``*ggml-*`` in folders further down, so it does not see this one.
"""

_BINARIES = ("/usr/local/bin", "/usr/bin", "/bin")  # in install.sh's order
_VERSION = re.compile(r"(?:client )?version is (\d[^\s]*)")
_MOST_SECONDS = 5.0


@dataclass(frozen=True)
class Tree:
    """One copy.

    Attributes:
        lib: the folder that has, or should have, ``llama-server``.
        program: ``ollama`` itself; ``None`` where it was not found.
    """

    lib: Path
    program: Path | None

    @property
    def server(self) -> Path:
        """The place from which Ollama starts its server."""
        return self.lib / SERVER

    @property
    def app(self) -> Path | None:
        """The macOS bundle that it is part of."""
        return next((p for p in self.lib.parents if p.suffix == ".app"), None)


def trees(path: Path | None) -> Iterator[Tree]:
    """The copies on this machine, or at ``path``; each once."""
    seen: set[Path] = set()
    for tree in _at(expand(path).absolute()) if path is not None else _usual():
        if tree.lib not in seen:
            seen.add(tree.lib)
            yield tree


def version_of(tree: Tree) -> str | None:
    """What the copy calls its version; asks the program where no file says it."""
    app = tree.app
    if app is not None:
        try:
            info = plistlib.loads((app / "Contents" / "Info.plist").read_bytes())
        except (OSError, ValueError, plistlib.InvalidFileException):
            return None
        said = info.get("CFBundleShortVersionString")
        return said if isinstance(said, str) else None
    if tree.program is None:
        return None
    try:
        info = tree.program.stat()
    except OSError:
        return None
    # Root starts no program that others can change.
    if hasattr(os, "geteuid") and os.geteuid() == 0 and info.st_uid != 0:
        return None
    return _asked(tree.program, info.st_mtime_ns)


@cache
def _asked(program: Path, changed: int) -> str | None:
    # Told to ask a server where none can be, it tells its own version at once.
    env = {**os.environ, "OLLAMA_HOST": "127.0.0.1:1"}
    try:
        done = subprocess.run(
            [program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_MOST_SECONDS,
            env=env,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return found[1] if found else None


def _usual() -> Iterator[Tree]:
    for program in _programs():
        if program.is_file():
            yield _tree(program)


def _programs() -> Iterator[Path]:
    found = shutil.which("ollama")
    if found:
        yield Path(found)
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        if local:
            yield Path(local) / "Programs" / "Ollama" / PROGRAM
    else:
        if sys.platform == "darwin":
            for applications in (Path("/Applications"), Path.home() / "Applications"):
                yield applications / "Ollama.app" / "Contents" / "Resources" / PROGRAM
            yield Path("/opt/homebrew/bin/ollama")
        for folder in _BINARIES:
            yield Path(folder) / PROGRAM
        yield Path.home() / ".local" / "bin" / PROGRAM


def _at(path: Path) -> Iterator[Tree]:
    """What a user's ``--path`` can mean."""
    if path.is_file() and path.name == PROGRAM:
        yield _tree(path)
        return
    if path.suffix == ".app":
        path = path / "Contents" / "Resources"
    for program in (path / "bin" / PROGRAM, path / PROGRAM):
        if program.is_file():
            tree = _tree(program)
            if tree.lib.is_dir():
                yield tree
                return
    if (path / SERVER).is_file() or path.parts[-2:] == ("lib", "ollama"):
        lib = path.resolve()
        yield Tree(lib, _program_of(lib))
        return
    for lib in (path / "lib" / "ollama", *_local(path)):
        if lib.is_dir():
            yield Tree(lib.resolve(), _program_of(lib.resolve()))
            return
    program = path / "bin" / PROGRAM
    if program.is_file():  # a copy without the folder: an old one
        yield _tree(program)


def _tree(program: Path) -> Tree:
    program = program.resolve()  # as Ollama does
    return Tree(_lib(program.parent) or _expected(program.parent), program)


def _lib(folder: Path) -> Path | None:
    """The folder of llama.cpp's programs for an ``ollama`` in ``folder``."""
    above, beside = folder.parent / "lib" / "ollama", folder / "lib" / "ollama"
    packaged = (above, beside) if sys.platform == "linux" else (beside, above)
    for lib in (*packaged, *_local(folder)):
        if lib.is_dir():
            return lib.resolve()
    return folder if sys.platform == "darwin" and (folder / SERVER).is_file() else None


def _expected(folder: Path) -> Path:
    """Where a copy that lacks the folder would have it."""
    base = folder.parent if folder.name == "bin" else folder
    return base / "lib" / "ollama"


def _local(folder: Path) -> Iterator[Path]:
    """Layouts of a source tree in which Ollama was built."""
    system = {"win32": "windows", "darwin": "darwin"}.get(sys.platform, "linux")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(
        platform.machine().lower(), platform.machine().lower()
    )
    yield folder / "build" / "lib" / "ollama"
    for join in "-_":
        yield folder / "dist" / f"{system}{join}{machine}" / "lib" / "ollama"


def _program_of(lib: Path) -> Path | None:
    root = lib.parent.parent
    for program in (root / "bin" / PROGRAM, root / PROGRAM, root.parent / PROGRAM, lib / PROGRAM):
        if program.is_file():
            return program.resolve()
    return None

"""Where LM Studio lives: its home folder, its version, its settings.

Facts: the home is named by the text file ``.lmstudio-home-pointer`` in the user's home, else it is
``~/.lmstudio`` or the older ``~/.cache/lm-studio`` (``findLMStudioHome`` of lmstudio.js). LM Studio
Bionic keeps its state in ``apps/bionic/.internal`` below the same home, the runtimes stay shared.
Where the program was installed is in ``app-install-location.json`` (``lms`` reads it).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from srhpm_plugin.files import expand
from srhpm_plugin.untrusted import read_bytes, read_json, text

BACKENDS = Path("extensions", "backends")
_INTERNALS = (Path(".internal"), Path("apps", "bionic", ".internal"))
PREFERENCES = "backend-preferences-v1.json"
"""Name of the file that holds the runtime selected for each model format."""
_POINTER = ".lmstudio-home-pointer"
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[-+]\d+)?")


def homes(path: Path | None) -> Iterator[Path]:
    """Home folders with an installation, the one in use first, each once.

    Args:
        path: only this one, or the one below it.
    """
    seen: set[Path] = set()
    for home in _named(path) if path else _usual():
        try:
            real = home.resolve()
            here = (home / BACKENDS).is_dir() or any((home / i).is_dir() for i in _INTERNALS)
        except (OSError, RuntimeError, ValueError):
            continue
        if here and real not in seen:
            seen.add(real)
            yield home


def _named(path: Path) -> tuple[Path, ...]:
    path = expand(path).absolute()
    return path, path / ".lmstudio"


def _usual() -> Iterator[Path]:
    user = Path.home()
    try:
        pointed = read_bytes(user / _POINTER, 4096).decode().strip()
    except (OSError, ValueError):
        pointed = ""
    if pointed and Path(pointed).is_absolute():
        yield Path(pointed)
    yield user / ".lmstudio"
    yield user / ".cache" / "lm-studio"


def version(home: Path) -> str | None:
    """The app's version, from the name of its AppImage or the package description of its files.

    Only what is on disk: the program is not run. ``None`` when neither tells.
    """
    for internal in _INTERNALS:
        try:
            program = text(read_json(home / internal / "app-install-location.json"), "path")
        except (OSError, ValueError):
            continue
        if not program:
            continue
        named = _VERSION.search(Path(program.replace("\\", "/")).name)
        if named:
            return named[0]
        try:
            packed = text(
                read_json(Path(program).parent / "resources" / "app" / "package.json"), "version"
            )
        except (OSError, ValueError):
            continue
        if packed and _VERSION.fullmatch(packed):
            return packed
    return None


def preferences(home: Path) -> Path | None:
    """The file that says which runtime is selected; of two apps the one that wrote last."""
    found: list[tuple[int, Path]] = []
    for internal in _INTERNALS:
        path = home / internal / PREFERENCES
        try:
            found.append((path.stat().st_mtime_ns, path))
        except OSError:
            continue
    return max(found)[1] if found else None


def defaults_folders(home: Path) -> tuple[Path, ...]:
    """Where the settings are kept that a user saved for a model."""
    return tuple(home / i / "user-concrete-model-default-config" for i in _INTERNALS)


def models_folder(home: Path) -> Path:
    """The folder the user chose for models, else the one below the home."""
    for settings in (home / "settings.json", home / "apps" / "bionic" / "settings.json"):
        try:
            named = text(read_json(settings), "downloadsFolder")
        except (OSError, ValueError):
            continue
        # A folder of the user's own choice: it may lie anywhere.
        if named and "\0" not in named and Path(named).is_absolute():
            return Path(named)
    return home / "models"


def lms(home: Path) -> Path | None:
    """LM Studio's command line program, if it is there."""
    for name in ("lms", "lms.exe"):
        program = home / "bin" / name
        if program.is_file():
            return program
    return None

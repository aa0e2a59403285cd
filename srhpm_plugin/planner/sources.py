"""Where model files are looked for on this machine (a hook), and what is found there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ..errors import UserError
from ..files import expand
from ..home import config_dir, data_dir
from ..hookspecs import hookimpl
from .hosted import host_files
from .search import DEEPEST, Found, collect

_VARIABLE = "SRHPM_MODELS"
_BY_CONTENT = re.compile(r"sha256[:-][0-9a-fA-F]{64}")


@hookimpl
def srhpm_model_sources() -> Iterable[Path]:
    """``SRHPM_MODELS``, the folders of our configuration, our own, and Hugging Face's cache."""
    yield from (place for _, place in _named())
    yield data_dir() / "models"
    yield from _hugging_face()


def _named() -> list[tuple[str, Path]]:
    """Places that the user named, each with who names it."""
    parts = os.environ.get(_VARIABLE, "").split(os.pathsep)
    named = [(_VARIABLE, expand(part)) for part in parts if part]
    return named + [(str(config_dir() / "config.toml"), folder) for folder in _configured()]


def _configured() -> list[Path]:
    """``models.folders`` of ``config.toml`` in our configuration folder.

    Raises:
        UserError: the file is damaged or the entry is no list of strings.
    """
    path = config_dir() / "config.toml"
    try:
        data = tomlkit.parse(path.read_text("utf-8")).unwrap()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, UnicodeDecodeError, TOMLKitError) as error:
        raise UserError(f"cannot read {path}", str(error), "mend or remove the file") from error
    models = data.get("models", {})
    folders = models.get("folders", []) if isinstance(models, dict) else None
    if not isinstance(folders, list) or not all(isinstance(f, str) for f in folders):
        raise UserError(
            f"cannot use {path}",
            "models.folders is not a list of paths",
            'write it as: [models] folders = ["/path/one", "/path/two"]',
        )
    return [expand(folder) for folder in folders]


def _hugging_face() -> Iterator[Path]:
    """Snapshots only: the blobs beside them are the same files under names nobody knows."""
    home = os.environ.get("HF_HOME")
    cache = os.environ.get("HF_HUB_CACHE")
    root = expand(home) if home else Path.home() / ".cache" / "huggingface"
    hub = expand(cache) if cache else root / "hub"
    try:
        yield from sorted(hub.glob("models--*/snapshots"))
    except OSError:
        return


def known_models(near: Path | None = None) -> tuple[Path, ...]:
    """All model files known here, hosts' included, each once: first parts of split models, no
    projectors.

    Args:
        near: a model whose folder is looked at too, itself included.
    """
    found = Found()
    # A store that names its files by their content keeps what no model needs any more beside them.
    if near is not None and not _BY_CONTENT.fullmatch(near.name):
        collect(expand(near).absolute().parent, 1, found)
    for source in _sources():
        collect(source, DEEPEST, found)
    for file in host_files():
        collect(file, 0, found)
    return tuple(found.models.values())


@dataclass(frozen=True)
class Survey:
    """Everything that is to be said about the places looked at.

    Attributes:
        models: as :func:`known_models` gives them.
        broken: files called ``.gguf`` that hold none or cannot be read.
        ignored: other files in the places that the user named.
        missing: places that the user named and that are not there, each with who names it.
    """

    models: tuple[Path, ...]
    broken: tuple[Path, ...]
    ignored: int
    missing: tuple[tuple[str, Path], ...]


def survey() -> Survey:
    """Looks everywhere."""
    named = {place for _, place in _named()}
    ours, elsewhere = Found(), Found()
    for source in _sources():
        collect(source, DEEPEST, ours if source in named else elsewhere)
    models = {**ours.models, **elsewhere.models}
    broken = {**ours.broken, **elsewhere.broken}
    return Survey(
        tuple(models.values()), tuple(broken.values()), len(ours.others), missing_places()
    )


def missing_places() -> tuple[tuple[str, Path], ...]:
    """Places that the user named and that are not there, each with who names it."""
    return tuple((who, place) for who, place in _named() if not os.path.lexists(place))


def _sources() -> Iterator[Path]:
    from ..plugins import plugins

    for group in plugins().hook.srhpm_model_sources():
        yield from group

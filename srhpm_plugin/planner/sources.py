"""Model files on this machine: where to look (a hook) and what counts as one."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ..errors import UserError
from ..home import config_dir, data_dir
from ..hookspecs import hookimpl

# A search must end whatever it is pointed at: folders below each other, entries looked at.
_DEEPEST = 6
_MOST_ENTRIES = 20_000

_MAGIC = b"GGUF"
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
# GGUF files that are no language model; the header's first fields say so.
_OTHER_KINDS = re.compile(
    rb"general\.(?:architecture|type)\x08\0\0\0.\0{7}(?:clip|mmproj|adapter|imatrix)", re.DOTALL
)
_HEAD_BYTES = 4096


@hookimpl
def srhpm_model_sources() -> Iterable[Path]:
    """``SRHPM_MODELS``, the folders of our configuration, our own, and Hugging Face's cache."""
    named = os.environ.get("SRHPM_MODELS", "")
    yield from (Path(part).expanduser() for part in named.split(os.pathsep) if part)
    yield from _configured()
    yield data_dir() / "models"
    yield from _hugging_face()


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
    return [Path(folder).expanduser() for folder in folders]


def _hugging_face() -> Iterator[Path]:
    """Snapshots only: the blobs beside them are the same files under names nobody knows."""
    home = os.environ.get("HF_HOME")
    cache = os.environ.get("HF_HUB_CACHE")
    root = Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface"
    hub = Path(cache).expanduser() if cache else root / "hub"
    try:
        yield from sorted(hub.glob("models--*/snapshots"))
    except OSError:
        return


def known_models(near: Path | None = None) -> tuple[Path, ...]:
    """All model files known here, each once: first parts of split models, no projectors.

    Args:
        near: a model whose folder is looked at too, itself included.
    """
    from ..plugins import plugins

    found: dict[tuple[int, int], Path] = {}
    if near is not None:
        _collect(near.expanduser().absolute().parent, 1, found)
    for group in plugins().hook.srhpm_model_sources():
        for source in group:
            _collect(source, _DEEPEST, found)
    return tuple(found.values())


def _collect(source: Path, deepest: int, found: dict[tuple[int, int], Path]) -> None:
    for path, info in _walk(source, deepest):
        # One entry per file, however many links lead to it.
        key = (info.st_dev, info.st_ino)
        if key not in found and is_model(path):
            found[key] = path


def _walk(source: Path, deepest: int) -> Iterator[tuple[Path, os.stat_result]]:
    """Regular files below ``source`` (or itself), in order, through links but into no folder
    twice."""
    pending, seen, left = [(source, 0)], set[tuple[int, int]](), _MOST_ENTRIES
    while pending and left > 0:
        path, depth = pending.pop()
        left -= 1
        try:
            info = path.stat()
        except (OSError, ValueError):
            continue  # a dangling or circular link, or not ours to see
        if stat.S_ISREG(info.st_mode):
            yield path, info
            continue
        key = (info.st_dev, info.st_ino)
        if not stat.S_ISDIR(info.st_mode) or depth >= deepest or key in seen:
            continue
        seen.add(key)
        try:
            inside = sorted(path.iterdir(), reverse=True)
        except OSError:
            continue
        pending += [(child, depth + 1) for child in inside]


def is_model(path: Path) -> bool:
    """A GGUF file by its magic, the first part of its model, and a language model as far as the
    start of its header says."""
    part = _PART.search(path.name)
    if (part and part[1] != "00001") or path.name.lower().startswith("mmproj"):
        return False
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    return head.startswith(_MAGIC) and not _OTHER_KINDS.search(head)

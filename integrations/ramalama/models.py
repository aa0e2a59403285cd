"""RamaLama's models: ``<store>/<transport>/<name>/refs/<tag>.json`` names the files of each.

Facts (RamaLama 0.25.0, ``model_store``): a file's content is ``blobs/<hash>``, with ``-`` for the
``:`` of older hashes; ``type`` is ``gguf``, ``mmproj``, ``chat_template``, ``safetensor`` or other.
``ramalama ls`` shows ``transport://name:tag``, three slashes for ``file``, no tag ``latest``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from srhpm_plugin.host import HostModel
from srhpm_plugin.untrusted import inside, items, read_json, text

_HASH = re.compile(r"sha256[-:]([0-9a-f]{64})")
_DEEPEST = 12
_MOST = 5000


def models(store: Path) -> Iterator[HostModel]:
    """Every model with a GGUF file."""
    for folder in _with_refs(store):
        parts = folder.relative_to(store).parts
        name = f"{parts[0]}:{'///' if parts[0] == 'file' else '//'}{'/'.join(parts[1:])}"
        try:
            refs = sorted((folder / "refs").glob("*.json"))
        except OSError:
            continue
        for ref in refs:
            try:
                files = items(read_json(ref), "files")
            except (OSError, ValueError):
                continue
            path = _blob(folder, files, "gguf")
            if path is not None:
                tag = "" if ref.stem == "latest" else f":{ref.stem}"
                yield HostModel(name + tag, path, mmproj=_blob(folder, files, "mmproj"))


def _blob(folder: Path, files: object, kind: str) -> Path | None:
    """The content of the first file of a kind."""
    for file in files if isinstance(files, list) else ():
        if text(file, "type") != kind:
            continue
        digest = _HASH.fullmatch(text(file, "hash") or "")
        path = inside(folder / "blobs", f"sha256-{digest[1]}") if digest else None
        return path if path is not None and path.is_file() else None
    return None


def _with_refs(store: Path) -> Iterator[Path]:
    """Folders of models below ``store``, entered through no link."""
    left, pending = _MOST, [(store, 0)]
    while pending and left > 0:
        folder, depth = pending.pop()
        left -= 1
        try:
            inner = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            continue
        if depth > 1 and any(p.name == "refs" for p in inner):
            yield folder
        elif depth < _DEEPEST:
            pending += [(path, depth + 1) for path in reversed(inner)]

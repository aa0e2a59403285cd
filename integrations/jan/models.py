"""Jan's models: ``llamacpp/models/<id>/model.yml``, the id with as many parts as folders.

Paths in it count from the data folder. A model that was imported from elsewhere has an absolute
one; it is left out here (its folder can be named in ``SRHPM_MODELS``), Jan starts it all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from srhpm_plugin.host import HostModel
from srhpm_plugin.untrusted import inside, member, read_yaml, text

_DEEPEST = 5
_MOST = 2000
_MOST_CONTEXT = 1 << 24


def models(data: Path) -> Iterator[HostModel]:
    """Every model with a file in the data folder."""
    root = data / "llamacpp" / "models"
    for description in _descriptions(root):
        try:
            content = read_yaml(description)
        except (OSError, ValueError):
            continue
        path = _file(data, text(content, "model_path"))
        if path is None:
            continue
        ctx = member(content, "ctx_size")
        yield HostModel(
            name=description.parent.relative_to(root).as_posix(),
            path=path,
            drafter=_file(data, text(content, "mtp_model_path")),
            mmproj=_file(data, text(content, "mmproj_path")),
            ctx=ctx if isinstance(ctx, int) and 0 < ctx <= _MOST_CONTEXT else None,
            unfit="it computes embeddings" if member(content, "embedding") is True else None,
        )


def _file(data: Path, name: str | None) -> Path | None:
    path = inside(data, name) if name else None
    return path if path is not None and path.is_file() else None


def _descriptions(root: Path) -> Iterator[Path]:
    """Descriptions below ``root``; folders are entered through no link."""
    left, pending = _MOST, [(root, 0)]
    while pending and left > 0:
        folder, depth = pending.pop()
        left -= 1
        description = folder / "model.yml"
        if depth and description.is_file():
            if inside(root, description.relative_to(root).as_posix()) is not None:
                yield description
            continue
        try:
            inner = sorted(p for p in folder.iterdir() if p.is_dir() and not p.is_symlink())
        except OSError:
            continue
        if depth < _DEEPEST:
            pending += [(path, depth + 1) for path in reversed(inner)]

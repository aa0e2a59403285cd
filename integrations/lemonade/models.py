"""Models that the user has registered in Lemonade: ``user_models.json``, files in Hugging Face's
cache.

Facts (``docs/guide/configuration/custom-models.md``): a model has ``checkpoint``, or
``checkpoints.main``, of the form ``org/repo:variant``, where the variant is a file's name or a
quantization in it; ``checkpoints`` may name a ``draft`` and an ``mmproj``; it is called by its key
or ``user.`` and that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from srhpm_plugin.files import expand
from srhpm_plugin.host import HostModel
from srhpm_plugin.untrusted import inside, member, read_json, text

_NO_TEXT = {"embeddings", "reranking"}
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def models(config: Path) -> Iterator[HostModel]:
    """Those whose file is there."""
    try:
        registered = read_json(config / "user_models.json")
    except (OSError, ValueError):
        return
    for name, model in registered.items() if isinstance(registered, dict) else ():
        if text(model, "recipe") != "llamacpp":
            continue
        path = _file(text(model, "checkpoints", "main") or text(model, "checkpoint"))
        if path is None:
            continue
        labels = member(model, "labels")
        kinds = set(map(str, labels)) if isinstance(labels, list) else set()
        yield HostModel(
            name=name.removeprefix("user."),
            path=path,
            drafter=_file(text(model, "checkpoints", "draft")),
            mmproj=_file(text(model, "checkpoints", "mmproj")),
            unfit="it computes embeddings" if kinds & _NO_TEXT else None,
        )


def _file(checkpoint: str | None) -> Path | None:
    """The file of ``org/repo:variant``."""
    repo, _, variant = (checkpoint or "").partition(":")
    if not variant or not _REPO.fullmatch(repo):
        return None
    hub = _hub()
    folder = inside(hub, f"models--{repo.replace('/', '--')}/snapshots")
    if folder is None:
        return None
    try:
        files = sorted(folder.glob("*/*.gguf"))
    except OSError:
        return None
    wanted = variant.casefold()
    for exact in (True, False):
        for file in files:
            name = file.name.casefold()
            if name == wanted if exact else wanted in name and "mmproj" not in name:
                relative = file.relative_to(hub).as_posix()
                return file if inside(hub, relative) is not None and file.is_file() else None
    return None


def _hub() -> Path:
    cache, home = os.environ.get("HF_HUB_CACHE"), os.environ.get("HF_HOME")
    if cache:
        return expand(cache)
    return (expand(home) if home else Path.home() / ".cache" / "huggingface") / "hub"

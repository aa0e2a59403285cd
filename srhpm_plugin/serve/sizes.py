"""Bytes of model files, without opening them."""

from __future__ import annotations

import re
from pathlib import Path

_PART = re.compile(r"(.+)-00001-of-(\d{5})\.gguf", re.IGNORECASE)
_MOST_PARTS = 1000


def model_bytes(path: Path) -> int:
    """Of a model and, where its name says that it is split, of its other parts; 0 where it is not
    there."""
    split = _PART.fullmatch(path.name)
    count = int(split[2]) if split else 1
    if split is None or not 1 < count <= _MOST_PARTS:
        return _bytes(path)
    suffix = path.name[-5:]
    names = (f"{split[1]}-{i:05d}-of-{split[2]}{suffix}" for i in range(1, count + 1))
    return sum(_bytes(path.with_name(name)) for name in names)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

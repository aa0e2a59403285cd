"""Looking through files and folders for models: what counts as one, what is broken, what is not
ours."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# A search must end whatever it is pointed at: folders below each other, entries looked at.
DEEPEST = 6
MOST_ENTRIES = 20_000

_MAGIC = b"GGUF"
_SUFFIX = ".gguf"
_PART = re.compile(r"-(\d{5})-of-\d{5}\.gguf$", re.IGNORECASE)
# GGUF files that are no language model; the header's first fields say so.
_OTHER_KINDS = re.compile(
    rb"general\.(?:architecture|type)\x08\0\0\0.\0{7}(?:clip|mmproj|adapter|imatrix)", re.DOTALL
)
_HEAD_BYTES = 4096

_Key = tuple[int, int]
Kind = Literal["model", "part", "broken", "other"]


@dataclass
class Found:
    """What a search has come across; one entry per file, however many links lead to it.

    Attributes:
        models: language models (by their first bytes; the rest may still be damaged).
        broken: files called ``.gguf``, or named themselves, that hold none or cannot be read.
        others: how many files are neither.
    """

    models: dict[_Key, Path] = field(default_factory=dict)
    broken: dict[_Key | Path, Path] = field(default_factory=dict)
    others: set[_Key] = field(default_factory=set)


def collect(source: Path, deepest: int, found: Found) -> None:
    """Adds what lies at or below ``source``, at most ``deepest`` folders down."""
    for path, info in _walk(source, deepest):
        if info is None:
            if path.suffix.lower() == _SUFFIX:
                found.broken.setdefault(path, path)
            continue
        key = (info.st_dev, info.st_ino)
        if key in found.models or key in found.broken or key in found.others:
            continue
        kind = kind_of(path)
        if kind == "model":
            found.models[key] = path
        elif kind == "broken" or (kind == "other" and path == source):
            found.broken[key] = path
        elif kind == "other":
            found.others.add(key)


def _walk(source: Path, deepest: int) -> Iterator[tuple[Path, os.stat_result | None]]:
    """Files below ``source`` (or itself), in order, through links but into no folder twice; no
    facts for what is no regular file or cannot be looked at."""
    pending, seen, left = [(source, 0)], set[_Key](), MOST_ENTRIES
    while pending and left > 0:
        path, depth = pending.pop()
        left -= 1
        try:
            info = path.stat()
        except (OSError, ValueError):
            if depth:  # a dangling or circular link, or not ours to see
                yield path, None
            continue
        if not stat.S_ISDIR(info.st_mode):
            yield path, info if stat.S_ISREG(info.st_mode) else None
            continue
        key = (info.st_dev, info.st_ino)
        if depth >= deepest or key in seen:
            continue
        seen.add(key)
        try:
            inside = sorted(path.iterdir(), reverse=True)
        except OSError:
            continue
        pending += [(child, depth + 1) for child in inside]


def kind_of(path: Path) -> Kind:
    """By name and first bytes: a model, a later ``part`` of one, a ``broken`` .gguf, or an
    ``other`` file, GGUFs included that are no language model."""
    part = _PART.search(path.name)
    if part and part[1] != "00001":
        return "part"
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        head = b""
    if not head.startswith(_MAGIC):
        return "broken" if path.suffix.lower() == _SUFFIX else "other"
    if path.name.lower().startswith("mmproj") or _OTHER_KINDS.search(head):
        return "other"
    return "model"

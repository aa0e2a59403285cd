"""Reading what hosts and their models' authors wrote: bounded, and never out of a folder.

Manifests, catalogues and settings of hosts name files. None of them is trusted: a name is followed
only if it stays below the folder it belongs to, on every system (a tree may be carried from one to
another).
"""

from __future__ import annotations

import json
import re
import stat
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

MOST_BYTES = 4 << 20
"""Manifests and settings of hosts are some kilobytes; release notes make the largest of them."""

_MOST_YAML = 256 << 10  # parsed in Python: a second
_DEEPEST = 40

_SEPARATORS = re.compile(r"[/\\]")
# Windows opens a device under these names, whatever the folder and the ending.
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9]|conin\$|conout\$)(?:[. ].*)?", re.I)
# Signs that look like separators and have no compatibility mapping to one.
_LOOK_ALIKE = frozenset("\u2044\u2215\u29f5\u29f8\u29f9\u2216\u2571\u2572")


def inside(root: Path, name: str) -> Path | None:
    """The file or folder ``name`` below ``root``; ``None`` if the name could lead anywhere else.

    Refused are absolute names, ``..``, empty parts, drives and streams (``:``), device names of
    Windows, parts ending in a dot or space (Windows drops those), signs that are not printable or
    that turn into separators or dots under Unicode's compatibility mapping, and links that lead
    out of ``root``. Whether there is such a file is not asked.
    """
    parts = _SEPARATORS.split(name)
    if not all(map(_plain, parts)):
        return None
    path = root.joinpath(*parts)
    try:
        return path if path.resolve().is_relative_to(root.resolve()) else None
    except (OSError, RuntimeError, ValueError):  # circular links, a name too long
        return None


def _plain(part: str) -> bool:
    same = unicodedata.normalize("NFKC", part)
    return bool(
        part
        and part.isprintable()
        and not _LOOK_ALIKE.intersection(part)
        and not set('/\\:*?"<>|').intersection(same)
        and not same.endswith((".", " "))
        and not same.startswith(" ")
        and not _DEVICES.fullmatch(same)
    )


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The content of a regular file of at most ``most`` bytes.

    Raises:
        ValueError: it is no regular file, or larger.
        OSError: it cannot be read.
    """
    # A pipe would block the opening: asked first, and again of what was opened.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"it has more than {most} bytes")
    return content


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """JSON in a file of at most ``most`` bytes; an object that names a key twice is refused.

    Raises:
        ValueError: it is too large, no JSON (NaN and deep nesting included), or ambiguous.
        OSError: it cannot be read.
    """
    return parse_json(read_bytes(path, most))


def parse_json(content: bytes) -> Any:
    """As :func:`read_json`, of its content. A byte order mark is passed over.

    Raises:
        ValueError: as there.
    """
    try:
        return json.loads(
            content.decode("utf-8-sig"), object_pairs_hook=_once, parse_constant=_no_number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def read_yaml(path: Path, most: int = _MOST_YAML) -> Any:
    """YAML of plain data in a file of at most ``most`` bytes, without anchors and aliases.

    Raises:
        ValueError: it is too large, no YAML, nested too deeply (the time grows with its square),
            or has an alias (which can stand for gigabytes).
        OSError: it cannot be read.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

    text, depth = read_bytes(path, most).decode("utf-8-sig"), 0
    try:
        for event in YAML(typ="safe", pure=True).parse(text):
            if isinstance(event, AliasEvent):
                raise ValueError("it has aliases")
            depth += isinstance(event, CollectionStartEvent)
            depth -= isinstance(event, CollectionEndEvent)
            if depth > _DEEPEST:
                raise ValueError("it is nested too deeply")
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def member(data: object, *keys: str) -> Any:
    """What lies under ``keys`` in nested objects; ``None`` when a key or an object is missing."""
    for key in keys:
        if not isinstance(data, dict):
            return None
        data = data.get(key)
    return data


def text(data: object, *keys: str) -> str | None:
    """As :func:`member`, only if it is a string."""
    found = member(data, *keys)
    return found if isinstance(found, str) else None


def items(data: object, *keys: str) -> Sequence[Any]:
    """As :func:`member`, only if it is a list; else an empty one."""
    found = member(data, *keys)
    return found if isinstance(found, list) else ()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("it names a key twice")
    return result


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")

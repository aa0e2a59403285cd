"""A model of llama-swap's, as its command line tells."""

from __future__ import annotations

from pathlib import Path

from srhpm_plugin.host import HostModel

from .config import Entry

_MODEL = ("-m", "--model")
_DRAFTER = ("-md", "--model-draft", "--spec-draft-model")
_PROJECTOR = ("-mm", "--mmproj")
_CONTEXT = ("-c", "--ctx-size")
_MOST_CONTEXT = 1 << 24


def model(entry: Entry) -> HostModel | None:
    """``None`` where the command names no file by its full path."""
    try:
        words = entry.words()
    except ValueError:
        return None
    path = _file(words, _MODEL)
    if path is None:
        return None
    ctx = _value(words, _CONTEXT) or ""
    return HostModel(
        name=entry.name,
        path=path,
        drafter=_file(words, _DRAFTER),
        mmproj=_file(words, _PROJECTOR),
        ctx=int(ctx) if ctx.isdecimal() and 0 < int(ctx) <= _MOST_CONTEXT else None,
        twin=entry.twin_of is not None,
        unfit="it computes embeddings" if {"--embedding", "--embeddings"} & set(words) else None,
    )


def _file(words: list[str], flags: tuple[str, ...]) -> Path | None:
    value = _value(words, flags)
    path = Path(value) if value and "\0" not in value else None
    try:
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except OSError:
        return None


def _value(words: list[str], flags: tuple[str, ...]) -> str | None:
    """The last value of a flag, which is the one that counts."""
    found = None
    for i, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag in flags:
            found = value if equals else words[i + 1] if i + 1 < len(words) else None
    return found

"""From what a user types for a model to its file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path

from ..errors import UserError
from ..files import NO_SUCH_FILE, expand, not_a_file
from .headers import read_header
from .hosted import called, hosted
from .sources import known_models

_PART = re.compile(r"-00001-of-\d{5}$")


def short_name(path: Path) -> str:
    """The name a file is listed under: its host's, or its own without extension and part number."""
    named = called(path)
    if named is not None:
        return named
    stem = path.name[: -len(path.suffix)] if path.suffix.lower() == ".gguf" else path.name
    return _PART.sub("", stem)


def repository(path: Path) -> str | None:
    """``owner/name`` for a file in Hugging Face's cache."""
    for parent in path.parents:
        if parent.name.startswith("models--") and parent.name.count("--") >= 2:
            return parent.name.removeprefix("models--").replace("--", "/", 1)
    return None


def find_model(text: str, known: Iterable[Path] | None = None) -> Path:
    """The file that ``text`` names: a path, or a known model by its host's name, by file name, by
    repository, or by the name in its header.

    Raises:
        UserError: nothing or more than one model is called so; similar names are listed.
    """
    missing = not_a_file(text)
    if missing is None:
        return expand(text)
    by_host = _of_hosts(text) if known is None else None
    if by_host is not None:
        return by_host
    paths = list(known_models() if known is None else known)
    wanted = text.casefold()
    hits = [p for p in paths if wanted in _names(p)] or [p for p in paths if wanted == _stated(p)]
    if len(hits) == 1:
        return hits[0]
    if hits:
        shown = ", ".join(str(p) for p in hits[:5])
        why = f"{len(hits)} are called so"
        raise UserError(f"no single model {text!r}", why, f"give one of: {shown}")
    if missing == NO_SUCH_FILE:
        missing += " and no known model of this name"
    raise UserError(f"no model {text!r}", missing, _suggest(text, paths))


def _of_hosts(text: str) -> Path | None:
    """The file of the host's model called ``text``; ``None`` if no host has one.

    Raises:
        UserError: it cannot be run here, or several hosts mean different files by it.
    """
    hits = [one for one in hosted()[0] if one.answers_to(text)]
    fit = {one.model.path for one in hits if one.model.unfit is None}
    if len(fit) > 1:
        why = "hosts mean different files by it"
        raise UserError(
            f"no single model {text!r}", why, f"give one of: {', '.join(map(str, sorted(fit)))}"
        )
    if hits and not fit:
        raise UserError(
            f"cannot run {text!r}",
            hits[0].model.unfit or "",
            f"see them all with: srhpm-plugin models --host {hits[0].host}",
        )
    return next(iter(fit), None)


def _names(path: Path) -> set[str]:
    names = {path.name.casefold(), short_name(path).casefold()}
    repo = repository(path)
    return names | {repo.casefold()} if repo else names


def _stated(path: Path) -> str | None:
    try:
        return read_header(path).name.casefold()
    except UserError:
        return None


def _suggest(text: str, paths: list[Path]) -> str:
    names = sorted({short_name(p) for p in paths} | {r for p in paths if (r := repository(p))})
    wanted = Path(text).name.casefold().removesuffix(".gguf")
    near = [n for n in names if wanted and wanted in n.casefold()]
    by_fold = {n.casefold(): n for n in names}
    near += [by_fold[n] for n in difflib.get_close_matches(wanted, by_fold, 5, 0.5)]
    if near:
        return f"did you mean: {', '.join(list(dict.fromkeys(near))[:5])}"
    if names:
        return "see the known ones with: srhpm-plugin models"
    return "give the path of a .gguf file, or name folders of models in SRHPM_MODELS"

"""Models split over several files named ``NAME-00001-of-00003.gguf``."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from ..errors import UserError
from ..model import Tensor
from .cursor import DOWNLOAD_AGAIN
from .header import Header, read_header

MAX_PARTS: Final = 2**16 - 1  # the field is a uint16
_NAME: Final = re.compile(r"(?P<stem>.+)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf")
_NAMED_MISSING: Final = 3


@dataclass(frozen=True)
class Parts:
    """All files of a model.

    Attributes:
        paths: the files in order; one for a model that is not split.
        first: header of the first part, which holds the fields of the model.
        tensors: those of all parts, each with its part's index.
    """

    paths: tuple[Path, ...]
    first: Header
    tensors: tuple[Tensor, ...]


def part_path(stem: Path, index: int, count: int) -> Path:
    """File name of part ``index`` (from 0) of ``count``; ``stem`` is the path without suffix."""
    return stem.with_name(f"{stem.name}-{index + 1:05d}-of-{count:05d}.gguf")


def model_stem(path: Path) -> str:
    """The file name without ``-00001-of-00003`` and without ``.gguf``."""
    named = _NAME.fullmatch(path.name)
    if named:
        return named["stem"]
    return path.stem if path.suffix == ".gguf" else path.name


def read_parts(path: Path, keep: Collection[str] = ()) -> Parts:
    """Read the headers of all parts of the model that ``path`` is one of (any of them).

    Args:
        path: the file, or any part of a split model.
        keep: as for :func:`~.header.read_header`, for the first part.

    Raises:
        UserError: a part is missing, damaged, or does not belong to the others.
    """
    asked = read_header(path, keep)
    count = _split_field(asked, "split.count", 0)
    if count <= 1:
        return Parts((path,), asked, asked.tensors)
    if count > MAX_PARTS:
        raise UserError(f"cannot read {path}", f"it claims {count} parts", DOWNLOAD_AGAIN)
    index = _split_field(asked, "split.no", 0)
    paths = _all_paths(path, index, count)
    first = asked if index == 0 else read_header(paths[0], keep)
    tensors: list[Tensor] = []
    names: set[str] = set()
    for i, part in enumerate(paths):
        header = first if i == 0 else asked if i == index else read_header(part)
        _check_part(header, i, count)
        for tensor in header.tensors:
            if tensor.name in names:
                why = f"the tensor {tensor.name} is in an earlier part too"
                raise UserError(f"cannot read {part}", why, DOWNLOAD_AGAIN)
            names.add(tensor.name)
            tensors.append(replace(tensor, part=i))
    expected = _split_field(first, "split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise UserError(
            f"cannot read {path}",
            f"its {count} parts hold {len(tensors)} tensors, {expected} are stated",
            "download all parts again, from one place",
        )
    return Parts(paths, first, tuple(tensors))


def _split_field(header: Header, key: str, default: int) -> int:
    value = header.kv.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UserError(f"cannot read {header.path}", f"{key} is not a count", DOWNLOAD_AGAIN)
    return value


def _all_paths(path: Path, index: int, count: int) -> tuple[Path, ...]:
    """Paths of all parts, which lie beside each other; raises when one is missing."""
    named = _NAME.fullmatch(path.name)
    if not named or int(named["no"]) != index + 1 or int(named["count"]) != count:
        wanted = part_path(Path(model_stem(path)), index, count)
        raise UserError(
            f"cannot read {path}",
            f"it is part {index + 1} of {count} of a split model under another name",
            f"rename it so that it ends in {wanted.name[-20:]}, beside the other parts",
        )
    stem = path.with_name(named["stem"])
    paths: list[Path] = []
    missing: list[str] = []
    for i in range(count):
        part = part_path(stem, i, count)
        if part.is_file():
            paths.append(part)
        else:
            missing.append(part.name)
            if len(missing) > _NAMED_MISSING:
                break
    if missing:
        names = ", ".join(missing[:_NAMED_MISSING])
        more = " and more" if len(missing) > _NAMED_MISSING else ""
        raise UserError(
            f"cannot read {path}",
            f"of its {count} parts {names}{more} is missing in {path.parent}",
            "download the missing parts into the same folder",
        )
    return tuple(paths)


def _check_part(header: Header, index: int, count: int) -> None:
    """A part must say of itself what its name says."""
    stated = (_split_field(header, "split.no", -1 & 0xFFFF), _split_field(header, "split.count", 0))
    if stated != (index, count):
        raise UserError(
            f"cannot read {header.path}",
            f"its header says part {stated[0] + 1} of {stated[1]}, its name part {index + 1} of "
            f"{count}",
            "download this part again",
        )

"""What a GPU backend library must have in common with the server that loads it.

A library says only its API version (``GGML_BACKEND_API_VERSION``), which upstream raises now and
then and not at each change: the structures that both sides read lie in the headers below. Two trees
whose headers say the same, comments and spacing aside, have the same ABI.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..errors import UserError

# What upstream's GPU backends include of ggml: tensors and operations, backends as seen from both
# sides, graphs, and how quantized blocks are laid out.
HEADERS = (
    "ggml/include/ggml.h",
    "ggml/include/ggml-backend.h",
    "ggml/src/ggml-backend-impl.h",
    "ggml/src/ggml-impl.h",
    "ggml/src/ggml-common.h",
)
_CMAKE = "CMakeLists.txt"
_MOST_BYTES = 4 << 20

_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)
_API = re.compile(r"#\s*define\s+GGML_BACKEND_API_VERSION\s+(\d+)")
_VERSION = re.compile(r"set\(LLAMA_VERSION_(MAJOR|MINOR|PATCH)\s+(\d+)\)")


@dataclass(frozen=True)
class Abi:
    """See the module.

    Attributes:
        fingerprint: hash of the headers.
        api: ``GGML_BACKEND_API_VERSION``.
        version: llama.cpp's own version, such as ``0.1.2``; ``None`` for tags that have none.
    """

    fingerprint: str
    api: int
    version: str | None


def of_tree(tree: Path) -> Abi:
    """The ABI of a source tree; hooks change none of these files.

    Raises:
        UserError: a header is missing.
    """
    texts = {}
    for name in (*HEADERS, _CMAKE):
        try:
            texts[name] = (tree / name).read_text("utf-8", "replace")
        except OSError:
            continue
    return _abi(texts, tree.name)


def of_archive(archive: Path) -> Abi:
    """The ABI of a source package (:func:`.source.fetch`), read without extracting it.

    Raises:
        UserError: a header is missing, or the archive is damaged.
    """
    texts = {}
    wanted = {*HEADERS, _CMAKE}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                parts = PurePosixPath(member.name).parts
                name = "/".join(parts[2:])
                if name not in wanted or parts[1] != "llama.cpp" or not member.isfile():
                    continue
                file = tar.extractfile(member)
                assert file is not None
                texts[name] = file.read(_MOST_BYTES).decode("utf-8", "replace")
                if len(texts) == len(wanted):
                    break
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise UserError(
            f"cannot read {archive.name}", str(error), "delete it, then run this again"
        ) from None
    return _abi(texts, archive.name)


def _abi(texts: dict[str, str], where: str) -> Abi:
    digest = hashlib.sha256()
    for name in HEADERS:
        if name not in texts:
            raise UserError(
                f"{where} cannot be compared with a host's libraries",
                f"it has no {name}",
                "name another llama.cpp tag with --tag",
            )
        digest.update(f"{name}\0{_bare(texts[name])}\0".encode())
    api = _API.search(_bare_lines(texts["ggml/src/ggml-backend-impl.h"]))
    if api is None:
        raise UserError(
            f"{where} cannot be compared with a host's libraries",
            "it names no GGML_BACKEND_API_VERSION",
            "name another llama.cpp tag with --tag",
        )
    numbers = dict(_VERSION.findall(texts.get(_CMAKE, "")))
    version = (
        ".".join(numbers[k] for k in ("MAJOR", "MINOR", "PATCH")) if len(numbers) == 3 else None
    )
    return Abi(digest.hexdigest(), int(api[1]), version)


def _bare_lines(text: str) -> str:
    return _COMMENT.sub(lambda found: found[1] or " ", text)


def _bare(text: str) -> str:
    return " ".join(_bare_lines(text).split())

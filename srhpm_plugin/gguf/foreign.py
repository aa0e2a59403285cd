"""Telling by the first bytes what a file is that is not a GGUF model this reader takes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

from ..errors import UserError
from .cursor import DOWNLOAD_AGAIN

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
HEAD: Final = 512
"""Bytes from the start of a file that :func:`refuse_foreign` looks at."""

_CONVERT = "download a GGUF of the model or convert it with llama.cpp's convert_hf_to_gguf.py"
_UNPACK = "unpack it and give the .gguf file inside"
_OLD = "convert the original model again or download a newer GGUF"


class _Kind(NamedTuple):
    magic: bytes
    why: str
    do: str


_KINDS = (
    _Kind(b"PK\x03\x04", "it is a zip archive or PyTorch checkpoint, not a GGUF model", _CONVERT),
    _Kind(b"\x80\x02", "it is a PyTorch (pickle) checkpoint, not a GGUF model", _CONVERT),
    _Kind(b"lmgg", "it is in the old ggml format that GGUF replaced", _OLD),
    _Kind(b"fmgg", "it is in the old ggmf format that GGUF replaced", _OLD),
    _Kind(b"tjgg", "it is in the old ggjt format that GGUF replaced", _OLD),
    _Kind(b"algg", "it is a LoRA adapter in an old format", _OLD),
    _Kind(b"\x1f\x8b", "it is gzip-compressed", _UNPACK),
    _Kind(b"\x28\xb5\x2f\xfd", "it is zstd-compressed", _UNPACK),
    _Kind(b"\xfd7zXZ\x00", "it is xz-compressed", _UNPACK),
    _Kind(b"BZh", "it is bzip2-compressed", _UNPACK),
    _Kind(b"7z\xbc\xaf\x27\x1c", "it is a 7-Zip archive", _UNPACK),
    _Kind(b"\x7fELF", "it is a program, not a model", "give the path of a .gguf file"),
    _Kind(b"MZ", "it is a program, not a model", "give the path of a .gguf file"),
)


def refuse_foreign(head: bytes, path: Path) -> None:
    """Raise :class:`UserError` unless ``head`` starts a little-endian GGUF file of a known version.

    Args:
        head: the first :data:`HEAD` bytes, fewer for a shorter file.
        path: for the message.
    """
    why, do = _judge(head, path)
    if why:
        raise UserError(f"cannot read {path}", why, do)


def _judge(head: bytes, path: Path) -> tuple[str, str]:
    if not head:
        return "the file is empty", DOWNLOAD_AGAIN
    if head[:4] == MAGIC:
        return _judge_version(head, path)
    if head[:4] == MAGIC[::-1]:
        return _big_endian(path)
    if head.startswith(b"version https://git-lfs"):
        return (
            "it is a Git LFS pointer, the model itself was not fetched",
            f"run `git lfs pull` in {path.parent}",
        )
    if _is_safetensors(head):
        return "it is a safetensors file, not a GGUF model", _CONVERT
    for kind in _KINDS:
        if head.startswith(kind.magic):
            return kind.why, kind.do
    if head[257:262] == b"ustar":
        return "it is a tar archive", _UNPACK
    if not any(head):
        return "it begins with zeros, as an unfinished download does", DOWNLOAD_AGAIN
    if MAGIC.startswith(head):
        return "the file is truncated within its first 4 bytes", DOWNLOAD_AGAIN
    return _judge_text(head)


def _judge_version(head: bytes, path: Path) -> tuple[str, str]:
    if len(head) < 8:
        return "the file is truncated within its first 8 bytes", DOWNLOAD_AGAIN
    (version,) = struct.unpack_from("<I", head, 4)
    if version in VERSIONS:
        return "", ""
    if version == 1:
        return "it is GGUF version 1, which llama.cpp no longer loads", _OLD
    if version & 0xFFFF == 0 and version:
        return _big_endian(path)
    if version == 0:
        return "it states GGUF version 0, which does not exist", DOWNLOAD_AGAIN
    return (
        f"it states GGUF version {version}; versions {VERSIONS[0]} to {VERSIONS[-1]} are known",
        "download the file again, or run `pip install --upgrade srhpm-plugin` if it is newer",
    )


def _big_endian(path: Path) -> tuple[str, str]:
    return (
        "it is a GGUF for big-endian machines",
        f"run `gguf-convert-endian {path} little` on a copy of it",
    )


def _is_safetensors(head: bytes) -> bool:
    """A safetensors file starts with the 8-byte length of a JSON object, then that object."""
    if len(head) < 9:
        return False
    (length,) = struct.unpack_from("<Q", head)
    return 2 <= length <= 100_000_000 and head[8:9] == b"{"


def _judge_text(head: bytes) -> tuple[str, str]:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    lower = text.lower()
    if lower.startswith((b"<!doctype", b"<html", b"<head", b"<?xml")):
        return (
            "it is a web page, not a model: a login or error page was saved in its place",
            "download the model again, from the link of the file itself",
        )
    if text.startswith((b"{", b"[")):
        return "it is a JSON file, not a model", "give the path of the .gguf file"
    shown = head[:4].decode("ascii", "replace")
    return (
        f"it is not a GGUF model: it begins with {shown!r} instead of 'GGUF'",
        "give the path of a .gguf file",
    )

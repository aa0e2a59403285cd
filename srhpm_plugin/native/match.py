"""A build whose server can load the GPU libraries that a host brings along: of which llama.cpp tag.

The host's own server tells it (``--version``). Where PyPI has no source package of that tag, a
neighbour's serves if the ABI did not change in between: the headers of the next packages before and
after the tag must be the same.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from . import abi, source

_SECONDS = 20.0
# `version: 0.1.2-dev (build 10488, commit 9d77fa172)`, as b10488 and later print it, or the older
# `version: 9222 (9a532ae4b)`.
_LINE = re.compile(r"^version: .*$", re.MULTILINE)
_NEW = re.compile(r"version: (\S+) \(build (\d+), commit ([0-9a-f]{7,40}|\w+)\)")
_OLD = re.compile(r"version: (\d+) \(([0-9a-f]{7,40})\)")
# A shallow clone, as Ollama builds from, counts one commit.
_LEAST_BUILD = 1000
_LEAST_COMMIT = 7


@dataclass(frozen=True)
class Said:
    """What a server says of itself.

    Attributes:
        line: its version line, as it stands.
        version: llama.cpp's version without ``-dev``; ``None`` where it says only a number.
        build: the number of commits, which names the tag; ``None`` where it cannot.
        commit: abbreviated hash; empty where it says none.
    """

    line: str
    version: str | None
    build: int | None
    commit: str

    @property
    def tag(self) -> int | None:
        """The tag, as far as that alone tells it."""
        if self.build is not None:
            return self.build
        for tag, commit in source.COMMITS.items():
            if len(self.commit) >= _LEAST_COMMIT and (
                commit.startswith(self.commit) or self.commit.startswith(commit)
            ):
                return tag
        return None


def ask(server: Path) -> Said | None:
    """What ``server --version`` says; ``None``: nothing that is understood."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "SRHPM_"))}
    try:
        done = subprocess.run(
            [str(server), "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env=env,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # Upstream prints it on standard error, newer tags on standard output.
    return parse((done.stderr + b"\n" + done.stdout).decode("utf-8", "replace"))


def parse(text: str) -> Said | None:
    """The version line in a server's output."""
    found = _LINE.search(text)
    if not found:
        return None
    line = found[0].strip()
    if new := _NEW.fullmatch(line):
        commit = new[3] if re.fullmatch(r"[0-9a-f]+", new[3]) else ""
        return Said(line, new[1].removesuffix("-dev"), _build(new[2]), commit)
    if old := _OLD.fullmatch(line):
        return Said(line, None, _build(old[1]), old[2])
    return Said(line, None, None, "")


def _build(digits: str) -> int | None:
    number = int(digits)
    return number if number >= _LEAST_BUILD else None


def tag_of(host: str, said: Said, told: Callable[[], str | None] | None) -> int:
    """The tag of a host's server.

    Args:
        told: asks the host's plugin, where the server's words are not enough.

    Raises:
        UserError: nobody knows.
    """
    tag = said.tag
    if tag is None and told is not None and (text := told()):
        tag = source.parse_tag(text)
    if tag is None:
        raise UserError(
            f"the llama.cpp tag of {host}'s server is not known",
            f"it says only {said.line!r}",
            f"look it up in {host}'s sources or release notes, then add --tag bNNNNN",
        )
    return tag


def available(tag: int, said: Said, say: Callable[[str], None]) -> int:
    """The tag to build for a host's server of ``tag``: itself, or a neighbour with its ABI.

    Its source package is fetched.

    Raises:
        UserError: there is none, or the package is of another llama.cpp version than the server
            says.
    """
    try:
        archive = source.fetch(tag, say)
    except source.NoSuchTag as none:
        return _neighbour(tag, none, said, say)
    version = abi.of_archive(archive).version
    if said.version and version and said.version != version:
        raise UserError(
            f"b{tag} is not what this server was built from",
            f"it says {said.line!r}, and b{tag} is version {version}",
            "name the right one with --tag",
        )
    return tag


def _neighbour(tag: int, none: source.NoSuchTag, said: Said, say: Callable[[str], None]) -> int:
    before = max((other for other in none.others if other < tag), default=None)
    after = min((other for other in none.others if other > tag), default=None)
    if before is None or after is None:
        raise none
    say(f"there is no source package of b{tag}; comparing b{before} and b{after}, its neighbours")
    found = {other: abi.of_archive(source.fetch(other, say)) for other in (before, after)}
    if found[before].fingerprint != found[after].fingerprint:
        raise UserError(
            f"no source package can stand for llama.cpp b{tag}",
            f"the ABI of GPU libraries changed between b{before} and b{after}",
            "give a source tree of that tag with --source DIR and --tag",
        )
    near = sorted(found, key=lambda other: (found[other].version != said.version, abs(other - tag)))
    say(f"their headers are the same, so b{near[0]} serves")
    return near[0]

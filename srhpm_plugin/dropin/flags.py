"""Which flags a server knows, from its own ``--help``: names, number of values, variables."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..home import cache_dir
from .files import read_json, write_json

_NAME = re.compile(r"(--?[A-Za-z][\w.-]*)(,\s+)?")
_ENV = re.compile(r"\(env: (LLAMA_[A-Z0-9_]+)\)")
_TWO_VALUES = re.compile(r"[A-Z]+ [A-Z]+")
_REMOVED = "the argument has been removed"
_SECONDS = 10.0


@dataclass(frozen=True)
class Flag:
    """One option of the server.

    Attributes:
        names: all spellings; the negated ones (``--no-mmap``) of a switch among them.
        values: how many arguments follow it.
        env: the variable that says the same; empty when there is none.
        removed: the server knows the name only to refuse it.
    """

    names: tuple[str, ...]
    values: int
    env: str = ""
    removed: bool = False


@dataclass(frozen=True)
class FlagTable:
    """All options of a server, by every spelling and by variable."""

    by_name: Mapping[str, Flag]
    by_env: Mapping[str, Flag]

    @classmethod
    def of(cls, flags: list[Flag]) -> FlagTable:
        """The table of these options."""
        return cls(
            {name: flag for flag in flags for name in flag.names},
            {flag.env: flag for flag in flags if flag.env},
        )

    def knows(self, name: str) -> bool:
        """Whether the server accepts the spelling."""
        flag = self.by_name.get(name)
        return flag is not None and not flag.removed


def parse_help(text: str) -> list[Flag]:
    """The options in the output of ``llama-server --help``.

    An option starts a line with its spellings; a value's name follows after one blank, the
    description after several or on the next line.
    """
    flags: list[Flag] = []
    block: list[str] = []
    for line in [*text.splitlines(), "-"]:
        if line.startswith("-"):
            if block and (flag := _parse_block(block)):
                flags.append(flag)
            block = [line]
        elif block:
            block.append(line)
    return flags


def _parse_block(block: list[str]) -> Flag | None:
    line, at, names = block[0], 0, list[str]()
    while match := _NAME.match(line, at):
        names.append(match[1])
        at = match.end()
        if not match[2]:
            break
    if not names:
        return None
    hint = re.split(r"\s{2,}", line[at:])[0].strip() if line[at : at + 2].strip() else ""
    text = " ".join(block)
    env = _ENV.search(text)
    values = 0 if not hint else 2 if _TWO_VALUES.fullmatch(hint) else 1
    return Flag(tuple(names), values, env[1] if env else "", _REMOVED in text)


def flags_of(server: Path) -> FlagTable | None:
    """The options of ``server``; asked once per build, then kept. ``None``: it does not answer."""
    stat = server.stat()
    stamp = [str(server), stat.st_size, stat.st_mtime_ns]
    kept = cache_dir() / "dropin" / "flags.json"
    known = read_json(kept)
    if known.get("server") == stamp:
        try:
            return FlagTable.of(
                [Flag(tuple(n), int(v), str(e), bool(r)) for n, v, e, r in known["flags"]]
            )
        except (KeyError, TypeError, ValueError):
            pass
    # A variable of the host's that is no valid option would end the server before it answers, and
    # the one of a router would have it answer elsewhere.
    env = {k: v for k, v in os.environ.items() if not k.startswith("LLAMA_")}
    try:
        done = subprocess.run(
            [str(server), "--help"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    flags = parse_help(done.stdout.decode("utf-8", "replace"))
    table = FlagTable.of(flags)
    if not (table.knows("--model") and table.knows("--ctx-size")):
        return None
    write_json(
        kept,
        {"server": stamp, "flags": [[list(f.names), f.values, f.env, f.removed] for f in flags]},
    )
    return table

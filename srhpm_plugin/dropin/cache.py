"""Decisions kept for the next start: the key, what is kept, when it no longer holds.

Only the standard library: it is on the way of every start. Nothing secret is in it: the host's
arguments are kept by number, the key is a hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._version import __version__
from ..home import cache_dir, config_dir
from ..native.locate import INFO_NAME, find_server
from .answer import Answer
from .call import Call
from .files import keep_newest, read_json, write_json
from .gpumemory import Room, suffices

CALIBRATION = "calibration.json"  # what was measured of the machine, see srhpm_plugin/calibrate

_VERSION = 2
_MOST = 200
# More free RAM than a plan was squeezed into, by this factor, is worth another look.
_MORE_ROOM = 1.1
# Bytes below which no file is worth looking at as a drafter; entries of a folder that are read.
_LEAST_MODEL = 1 << 20
_MOST_ENTRIES = 2000


def _stamp(path: str | Path) -> list[int] | None:
    try:
        stat = Path(path).stat()
    except (OSError, ValueError):
        return None
    return [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns]


def key_of(call: Call) -> str:
    """Hash over everything that decides a start: arguments, environment, the files that arguments
    and variables name, note, configuration, our packages, server and processor."""
    server = None
    with contextlib.suppress(Exception):  # SRHPM_SERVER may name no file: no server, then
        server = find_server()
    args, env = call.telling_args(), call.telling_env()
    named = [w for text in (*args, *env.values()) for w in (text, text.partition("=")[2])]
    files = {word: stamp for word in named if _may_be_a_path(word) and (stamp := _stamp(word))}
    # Installing a package changes the folder that it goes to.
    places: list[str | Path] = [*sys.path, config_dir() / "config.toml", *_llama_configs(call.env)]
    places.append(cache_dir() / CALIBRATION)
    if server is not None:
        places += [server, server.parent.parent / INFO_NAME]
    original = call.original
    if original is not None:
        places.append(original)
    facts = [
        _VERSION,
        __version__,
        args,
        env,
        files,
        call.note_text.decode("utf-8", "replace"),
        str(call.place),
        [[str(place), _stamp(place)] for place in places],
        _processor(),
    ]
    text = json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()


def _may_be_a_path(word: str) -> bool:
    return 0 < len(word) < 4096 and ("/" in word or "\\" in word or "." in word)


def _llama_configs(env: Mapping[str, str]) -> Iterable[str]:
    """The configuration files that every llama.cpp program reads."""
    if sys.platform == "win32":
        folders = [env.get("PROGRAMDATA"), env.get("APPDATA")]
    else:
        home = env.get("HOME")
        folders = ["/etc", env.get("XDG_CONFIG_HOME") or (home and f"{home}/.config")]
    return [str(Path(folder) / "llama.cpp" / "config.ini") for folder in folders if folder]


def _processor() -> list[object]:
    allowed = getattr(os, "sched_getaffinity", None)
    with contextlib.suppress(OSError):
        return [os.cpu_count(), sorted(allowed(0)) if allowed else None]
    return [os.cpu_count(), None]


@dataclass(frozen=True)
class Kept:
    """A decision as it is kept.

    Attributes:
        answer: for the drop-in.
        record: what the launch record says of it (:mod:`.records`).
        needs: bytes of RAM it needs free; 0: it does not matter.
        squeezed: bytes that were free when it had to give something up for want of room; 0: it
            had not.
        watched: files and folders that it rests on, with their stamps.
        gpus: what it needs of GPUs; empty: nothing.
    """

    answer: Answer
    record: Mapping[str, Any]
    needs: int = 0
    squeezed: int = 0
    watched: Mapping[str, list[int] | None] = field(default_factory=dict)
    gpus: tuple[Room, ...] = ()


def watch(paths: Iterable[str | Path]) -> dict[str, list[int] | None]:
    """The stamps of these files and folders now."""
    return {str(path): _contents(path) or _stamp(path) for path in paths}


def _contents(folder: str | Path) -> list[int] | None:
    """Of a folder: its stamp, and a number for what is in it that may be a model or hold one.

    A folder such as ``Downloads`` changes all the time, what is told of it here seldom.
    """
    stamp = _stamp(folder)
    digest = hashlib.sha256()
    try:
        with os.scandir(folder) as entries:
            for count, entry in enumerate(sorted(entries, key=lambda e: e.name)):
                info = entry.stat()
                if entry.is_dir() or info.st_size >= _LEAST_MODEL:
                    size = 0 if entry.is_dir() else info.st_size
                    digest.update(f"{entry.name}\0{size}\0".encode("utf-8", "surrogatepass"))
                if count > _MOST_ENTRIES:
                    return None
    except OSError:
        return None
    return [*(stamp or []), int.from_bytes(digest.digest()[:6], "big")]


def _unchanged(path: str, before: list[int] | None) -> bool:
    stamp = _stamp(path)
    if before is None or len(before) < 5:
        return stamp == before
    if stamp == before[:4]:
        return True
    now = _contents(path)
    return now is not None and now[4:] == before[4:]


def _file(key: str) -> Path:
    return cache_dir() / "dropin" / f"{key[:40]}.plan"


def look_up(key: str, env: Mapping[str, str] | None = None) -> Kept | None:
    """The decision kept under ``key``, if it still holds. ``env`` is the host's environment."""
    data = read_json(_file(key))
    if data.get("key") != key:
        return None
    try:
        kept = Kept(
            Answer.from_records(data["answer"]),
            dict(data["record"]),
            int(data["needs"]),
            int(data["squeezed"]),
            dict(data["watched"]),
            tuple(Room.parse(room) for room in data["gpus"]),
        )
    except (KeyError, TypeError, ValueError):
        return None
    if not all(_unchanged(path, stamp) for path, stamp in kept.watched.items()):
        return None
    fits = _fits_now(kept) and suffices(kept.gpus, kept.answer, env or {})
    return kept if fits else None


def _fits_now(kept: Kept) -> bool:
    if not kept.needs and not kept.squeezed:
        return True
    from .memory import free_ram

    free = free_ram()
    if free is None or free < kept.needs:
        return False
    return not kept.squeezed or free <= kept.squeezed * _MORE_ROOM


def keep(key: str, kept: Kept) -> None:
    """Writes a decision down; where that cannot be, the next start decides anew."""
    done = write_json(
        _file(key),
        {
            "key": key,
            "answer": kept.answer.records(),
            "record": dict(kept.record),
            "needs": kept.needs,
            "squeezed": kept.squeezed,
            "watched": dict(kept.watched),
            "gpus": [asdict(room) for room in kept.gpus],
        },
    )
    if done:
        keep_newest(_file(key).parent, ".plan", _MOST)

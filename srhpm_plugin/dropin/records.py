"""What became of each start: a record written here before it, and a ``.live`` file that the patched
server keeps beside it (``native/overlay/common/srhpm-record.cpp``).

A model whose last start under the same key died while loading is handed over until the key changes
or the user says ``srhpm-plugin status --retry MODEL``. One that vanished without a word, twice in a
row, gets another chance by itself: perhaps a user had no patience.

Records hold names, paths, numbers and reasons, never arguments, keys or prompts. Only the standard
library: it is on the way of every start.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..home import data_dir
from .files import keep_newest, read_json, write_json

MOST = 200
LIVE = ".live"
RECORD_VARIABLE = "SRHPM_RECORD"
_LIVE_BYTES = 4096
# Seconds for which a model that vanished twice is handed over; doubled by each time more, as
# something else may end it each time (a daemon that watches memory, say).
_PAUSE = 30 * 60
_LONGEST_PAUSE = 24 * 3600
# Ends while loading that say nothing of the model.
_NOT_THE_MODEL = ("listening", "stopped")


def folder() -> Path:
    """Where the records are."""
    return data_dir() / "launches"


@dataclass(frozen=True)
class Live:
    """What the server says of itself.

    Attributes:
        state: ``loading``, ``ready``, ``failed`` or ``stopped``; empty: it has said nothing.
        reason: why it failed.
        tokens, seconds: generated so far and the time that took.
        drafted, accepted: of the drafter's tokens.
    """

    state: str = ""
    reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0


def read_live(record: Path) -> Live:
    """The live file beside a record; damage counts as silence."""
    try:
        with record.with_suffix(LIVE).open("rb") as file:
            text = file.read(_LIVE_BYTES).decode("utf-8", "replace")
    except OSError:
        return Live()
    pairs = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)

    def number(name: str) -> int:
        value = pairs.get(name, "")
        return int(value) if value.isdecimal() and len(value) < 16 else 0

    state = pairs.get("state", "")
    return Live(
        state if state in ("loading", "ready", "failed", "stopped") else "",
        "".join(c for c in pairs.get("reason", "") if c.isprintable())[:300],
        number("tokens"),
        number("ms") / 1000,
        number("drafted"),
        number("accepted"),
    )


def begin(key: str, facts: Mapping[str, Any]) -> Path | None:
    """Writes the record of a start that is about to happen. Returns it; ``None`` where none can be
    kept.

    Args:
        key: of the decision, see :mod:`.cache`.
        facts: what is to be said of it; ``status`` shows ``host``, ``model``, ``kind``,
            ``drafter``, ``reason`` and ``predicted``; ``live``: the server keeps a live file.
    """
    now = time.time()
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    name = f"{stamp}-{int(now % 1 * 1e6):06d}-{os.getpid()}.json"
    server = os.getppid()  # the drop-in becomes the server, on Windows its parent
    record = {
        **facts,
        "key": key,
        "time": round(now, 3),
        "pid": server,
        "started": started(server),
        "oom_kills": oom_kills(),
    }
    path = folder() / name
    if not write_json(path, record):
        return None
    for gone in keep_newest(folder(), ".json", MOST):
        with contextlib.suppress(OSError):
            gone.with_suffix(LIVE).unlink()
    ledger = read_json(_ledger(key))
    if facts.get("kind") != "stock":
        ledger["last"] = name
    ledger |= {"model": facts.get("model"), "host": facts.get("host")}
    ledger |= {"path": facts.get("path"), "key": key}
    write_json(_ledger(key), ledger)
    keep_newest(_ledger(key).parent, ".json", MOST)
    return path


def _ledger(key: str) -> Path:
    return folder() / "by-key" / f"{key[:40]}.json"


def blocked(key: str) -> str | None:
    """Why a model is handed over after how its last starts under ``key`` ended, in words."""
    ledger = read_json(_ledger(key))
    if ledger.get("key") != key:
        return None
    name = ledger.get("last")
    over = _is_over(ledger.get("until"))
    free = over or not ledger.get("blocked")
    if free and isinstance(name, str) and ledger.get("judged") != name:
        record = folder() / Path(name).name
        verdict = _judge(record)
        if verdict is not None:
            ledger |= {"judged": name, **_sentence(verdict, ledger.get("gone"), record)}
            write_json(_ledger(key), ledger)
            over = _is_over(ledger.get("until"))
    why = ledger.get("blocked")
    return f"our server {why}" if isinstance(why, str) and why and not over else None


def _sentence(verdict: str, gone: object, record: Path) -> dict[str, Any]:
    """What follows from a verdict: why the model is blocked and until when, and how often in a row
    it vanished."""
    if verdict != _SILENT:
        why = f"{verdict} at its last start"
        return {"gone": 0, "until": None, "blocked": why if verdict else None}
    times = (gone if isinstance(gone, int) else 0) + 1
    if times < 2:
        return {"gone": times, "until": None, "blocked": None}
    began = read_json(record).get("time")
    pause = min(_PAUSE << min(times - 2, 16), _LONGEST_PAUSE)
    until = (began if isinstance(began, (int, float)) else time.time()) + pause
    often = "twice" if times == 2 else f"{times} times"
    clock = time.strftime("%Y-%m-%d %H:%M", time.localtime(until))
    why = f"ended {often} while loading, without a word; the first start after {clock} tries again"
    return {"gone": times, "until": until, "blocked": why}


def _is_over(until: object) -> bool:
    """Whether the time for which a model was handed over has passed, or the clock was set back."""
    if not isinstance(until, (int, float)):
        return False
    return not 0 < until - time.time() <= _LONGEST_PAUSE


def all_blocked() -> list[tuple[dict[str, Any], str]]:
    """Every model that the next start would hand over, with why."""
    try:
        paths = sorted((folder() / "by-key").glob("*.json"))
    except OSError:
        return []
    ledgers = [read_json(path) for path in paths]
    found = [(ledger, blocked(str(ledger.get("key")))) for ledger in ledgers]
    return [(ledger, why) for ledger, why in found if why]


_SILENT = "?"


def _judge(record: Path) -> str | None:
    """What the end of a start says: empty for nothing bad, ``None`` while it is open."""
    live = read_live(record)
    if live.state in ("ready", "stopped"):
        return ""
    if live.state == "failed":
        if any(word in live.reason for word in _NOT_THE_MODEL):
            return ""
        return f"failed while loading ({live.reason})" if live.reason else "failed while loading"
    facts = read_json(record)
    if not facts.get("live"):
        return ""  # this server says nothing of itself, so its silence means nothing
    if alive(facts.get("pid"), facts.get("started")):
        return None
    before, now = facts.get("oom_kills"), oom_kills()
    if isinstance(before, int) and now is not None and now > before:
        return "was killed while loading, the system's memory ran out,"
    return _SILENT


def clear(model: str) -> list[str]:
    """Lets a model try again: its name, or its file's name or path. Returns what was cleared.

    Raises:
        OSError: the records are not ours to change.
    """
    cleared = []
    for ledger, _ in all_blocked():
        file = str(ledger.get("path") or "")
        if model in (ledger.get("model"), file, Path(file).name):
            _ledger(str(ledger["key"])).unlink(missing_ok=True)
            cleared.append(str(ledger.get("model")))
    return cleared


def started(pid: object) -> int | None:
    """When a process was started, in a unit of the system's: tells a number used again."""
    if not isinstance(pid, int):
        return None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        return int(stat.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None  # on other systems than Linux, too


def alive(pid: object, since: object) -> bool:
    """Whether a process runs and is the one that was started then."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    now = started(pid)
    if now is not None or since is not None:
        runs = now == since
    else:
        import psutil

        runs = bool(psutil.pid_exists(pid))
    return runs


def oom_kills() -> int | None:
    """How often the kernel killed a process for memory: in our control group, or since boot."""
    counters = ["/proc/vmstat"]
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text("utf-8", "replace").splitlines():
            if line.startswith("0::/") and ".." not in line:
                counters.insert(0, f"/sys/fs/cgroup{line[3:]}/memory.events")
    for name in counters:
        with contextlib.suppress(OSError):
            for line in Path(name).read_text("ascii", "replace").splitlines():
                field, _, value = line.partition(" ")
                if field == "oom_kill" and value.strip().isdecimal():
                    return int(value)
    return None

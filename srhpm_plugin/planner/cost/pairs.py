"""What was accepted of a pair's drafts when it ran before: by position from ``bench decode``, in
sums from the launches of hosts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...dropin.files import read_json, write_json
from ...home import data_dir
from ...plan import Draft, LaunchPlan

MOST = 200  # pairs kept


@dataclass(frozen=True)
class Counts:
    """What drafts came to under one policy.

    Attributes:
        n_min, n_max, p_min: the policy.
        rounds: passes of the target, those without a draft included.
        drafted, accepted: tokens by position in the draft.
    """

    n_min: int
    n_max: int
    p_min: float
    rounds: int
    drafted: tuple[int, ...]
    accepted: tuple[int, ...]

    def __add__(self, other: Counts) -> Counts:
        """Both together; of the same policy."""
        return Counts(
            self.n_min,
            self.n_max,
            self.p_min,
            self.rounds + other.rounds,
            _sum(self.drafted, other.drafted),
            _sum(self.accepted, other.accepted),
        )

    def same_policy(self, other: Counts) -> bool:
        """Whether they may be added."""
        return (self.n_min, self.n_max, self.p_min) == (other.n_min, other.n_max, other.p_min)


def _sum(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    n = max(len(a), len(b))
    pairs = zip(a + (0,) * (n - len(a)), b + (0,) * (n - len(b)), strict=True)
    return tuple(x + y for x, y in pairs)


def counts(said: Mapping[str, Any], tokens: int) -> Counts | None:
    """A server's ``timings.speculation`` of an answer of so many tokens; ``None`` where nothing was
    drafted, or tokens were accepted on purpose that the target would not have chosen."""
    try:
        drafted = tuple(int(n) for n in said["drafted_per_position"])
        accepted = tuple(int(n) for n in said["accepted_per_position"])
        found = Counts(
            int(said["n_min"]),
            int(said["n_max"]),
            float(said["p_min"]),
            # The first token comes with the prompt.
            max(int(said["passes"]), tokens - 1 - sum(accepted)),
            drafted,
            accepted,
        )
    except (KeyError, TypeError, ValueError):
        return None
    if said.get("relax") or not drafted or len(accepted) != len(drafted):
        return None
    if any(a < 0 or a > d for a, d in zip(accepted, drafted, strict=True)):
        return None
    return found


def total(all_: Iterable[Counts | None]) -> Counts | None:
    """The sum of those that have the policy of the first."""
    found: Counts | None = None
    for one in all_:
        if one is not None and (found is None or found.same_policy(one)):
            found = one if found is None else found + one
    return found


def key(model: Path, draft: Draft) -> str:
    """Of a pair: the files, and how it drafts."""
    facts = [_file(model), draft.type, draft.path and _file(draft.path)]
    text = json.dumps(facts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def _file(path: Path) -> list[object]:
    try:
        stat = path.stat()
        return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    except OSError:
        return [str(path)]


def policy(plan: LaunchPlan) -> dict[str, Any] | None:
    """What a launch notes of its pair, to learn from later how much was accepted; ``None`` where
    nothing can be learned."""
    draft = plan.draft
    if draft is None or plan.relax:
        return None
    return {"key": key(plan.model.path, draft), "n_min": draft.n_min, "n_max": draft.n_max}


def _path() -> Path:
    return data_dir() / "acceptance.json"


def remember(pair: str, found: Counts) -> None:
    """Keeps the newest counts of a pair. Where nothing can be written nothing is kept."""
    known = read_json(_path())
    known.pop(pair, None)
    known[pair] = {
        "n_min": found.n_min,
        "n_max": found.n_max,
        "p_min": found.p_min,
        "passes": found.rounds,
        "drafted_per_position": found.drafted,
        "accepted_per_position": found.accepted,
    }
    write_json(_path(), dict(list(known.items())[-MOST:]))


def recall(pair: str) -> Counts | None:
    """What :func:`remember` kept."""
    said = read_json(_path()).get(pair)
    return counts(said, 0) if isinstance(said, dict) else None

"""Every known model with what a plan would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import HostRequest, LaunchPlan
from .headers import read_header
from .make import make_plan


@dataclass(frozen=True)
class Entry:
    """One file: a model with its plan, one that cannot be launched here, or a broken file.

    Attributes:
        path: the file.
        model: its header; ``None`` for a broken file.
        plan: ``None`` when there is none.
        reason: why there is no plan.
    """

    path: Path
    model: ModelInfo | None = None
    plan: LaunchPlan | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry of ``models --json``; ``plan`` as ``plan --json`` has it, without command."""
        m = self.model
        return {
            "path": str(self.path),
            "name": m.name if m else None,
            "arch": m.arch if m else None,
            "params": m.n_params if m else None,
            "bytes": m.nbytes if m else None,
            "plan": self.plan.to_json() if self.plan else None,
            "reason": self.reason,
        }


def inventory(paths: Sequence[Path], machine: Machine, broken: Sequence[Path] = ()) -> list[Entry]:
    """An entry for each path, models first. Nothing a file holds is fatal.

    Args:
        paths: models, each a possible drafter of the others.
        machine: the hardware.
        broken: files of which it is known already that they hold no model.
    """
    entries = [_entry(path, paths, machine) for path in (*paths, *broken)]
    return sorted(entries, key=lambda e: (e.model is None, str(e.path)))


def _entry(path: Path, known: Sequence[Path], machine: Machine) -> Entry:
    try:
        model = read_header(path)
    except UserError as error:
        return Entry(path, reason=f"{error.why}; {error.do}" if error.do else error.why)
    try:
        plan = make_plan(
            HostRequest(path), model=model, machine=machine, known=known, command=False
        )
    except UserError as error:
        return Entry(path, model, reason=error.why)
    return Entry(path, model, plan)

"""Every known model with what a plan would make of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import HostRequest, LaunchPlan
from .headers import read_header
from .hosted import Hosted
from .make import make_plan


@dataclass(frozen=True)
class Entry:
    """One file: a model with its plan, one that cannot be launched here, or a broken file.

    Attributes:
        path: the file.
        model: its header; ``None`` for a broken file.
        plan: ``None`` when there is none.
        reason: why there is no plan.
        host: the plugin of the host whose model it is; ``None`` for a file of no host.
        called: the host's name for it.
        twin: the name runs on SR-HPM while another one for the same file does not.
    """

    path: Path
    model: ModelInfo | None = None
    plan: LaunchPlan | None = None
    reason: str | None = None
    host: str | None = None
    called: str | None = None
    twin: bool = False

    def to_json(self) -> dict[str, Any]:
        """The entry of ``models --json``; ``plan`` as ``plan --json`` has it, without command."""
        m = self.model
        return {
            "path": str(self.path),
            "host": self.host,
            "called": self.called,
            "twin": self.twin,
            "name": m.name if m else None,
            "arch": m.arch if m else None,
            "params": m.n_params if m else None,
            "bytes": m.nbytes if m else None,
            "plan": self.plan.to_json() if self.plan else None,
            "reason": self.reason,
        }


def inventory(
    paths: Sequence[Path],
    machine: Machine,
    broken: Sequence[Path] = (),
    hosts: Sequence[Hosted] = (),
) -> list[Entry]:
    """An entry for each path and each name of a host's, models first. Nothing a file holds is
    fatal.

    Args:
        paths: models, each a possible drafter of the others.
        machine: the hardware.
        broken: files of which it is known already that they hold no model.
        hosts: models of hosts, likewise possible drafters.
    """
    fit = {one.model.path for one in hosts if one.model.unfit is None}
    known = (*paths, *sorted(fit.difference(paths)))
    entries = [_entry(path, known, machine) for path in (*paths, *broken) if path not in fit]
    entries += [_of_host(one, known, machine) for one in hosts]
    return sorted(entries, key=lambda e: (e.model is None, e.host or "", e.called or str(e.path)))


def _of_host(one: Hosted, known: Sequence[Path], machine: Machine) -> Entry:
    model = one.model
    if model.unfit is not None:
        entry = Entry(model.path, reason=model.unfit)
    else:
        drafters = (model.drafter,) if model.drafter else ()
        request = HostRequest(model.path, ctx=model.ctx, mmproj=model.mmproj)
        entry = _entry(model.path, (*drafters, *known), machine, request)
    return replace(entry, host=one.host, called=model.name, twin=model.twin)


def _entry(
    path: Path, known: Sequence[Path], machine: Machine, request: HostRequest | None = None
) -> Entry:
    try:
        model = read_header(path)
    except UserError as error:
        return Entry(path, reason=f"{error.why}; {error.do}" if error.do else error.why)
    try:
        plan = make_plan(
            request or HostRequest(path), model=model, machine=machine, known=known, command=False
        )
    except UserError as error:
        return Entry(path, model, reason=error.why)
    return Entry(path, model, plan)

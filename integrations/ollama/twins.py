"""Twins: second names of a store's models that run on SR-HPM while the first stay as they were.

Made and removed through Ollama's own API, so that its lists and caches know them. A twin shares its
base's blobs; what it has of its own is one parameter (see :func:`.names.marker`), a manifest and
well below a kilobyte of JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from srhpm_plugin.errors import UserError
from srhpm_plugin.install.operations import Call
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.plan import HostRequest, LaunchPlan

from .names import Name, marker, marks_twin
from .store import Entry, Store


@dataclass(frozen=True)
class Verdict:
    """Whether a model gets a twin.

    Attributes:
        entry: the model.
        twin: the twin's name; ``None``: it gets none.
        why: why it gets none, in words.
    """

    entry: Entry
    twin: Name | None
    why: str | None = None


def is_twin(entry: Entry) -> bool:
    """It is called like a twin and is started like one."""
    batch = entry.params.get("num_batch")
    return entry.name.is_twin and isinstance(batch, int) and marks_twin(batch)


def judge(store: Store, machine: Machine) -> Iterator[Verdict]:
    """A verdict for each model of the store that is no twin itself."""
    entries = tuple(store.entries())
    taken = {entry.name: entry for entry in entries}
    known = tuple(e.model for e in entries if e.model is not None)
    done: dict[tuple[object, ...], Name] = {}
    for entry in entries:
        if is_twin(entry):
            continue
        why = entry.unfit or _twin_of(entry, done) or _no_gain(entry, known, machine)
        twin = entry.name.twin()
        if why is None and twin is None:
            why = "its name is too long for a second one"
        holder = taken.get(twin) if twin else None
        if why is None and holder is not None and not is_twin(holder):
            why = f"{twin} is a model of yours already"
        if why is not None or twin is None:
            yield Verdict(entry, None, why)
        else:
            done[entry.same_as] = entry.name
            yield Verdict(entry, twin)


def create(base: str, verdicts: Iterable[Verdict]) -> Iterator[Call]:
    """The requests that make the twins; ``base`` is the API's address."""
    for verdict in verdicts:
        if verdict.twin is None:
            continue
        twin, entry = str(verdict.twin), verdict.entry
        yield Call(
            method="POST",
            url=f"{base}/api/create",
            body={
                "model": twin,
                "from": str(entry.name),
                "parameters": {"num_batch": marker(entry.params)},
                "stream": False,
            },
            what=f"give {entry.name} the second name {twin}",
            undo_method="DELETE",
            undo_url=f"{base}/api/delete",
            undo_body={"model": twin},
            # One model that Ollama cannot read must not keep the others from theirs.
            required=False,
        )


def _twin_of(entry: Entry, done: dict[tuple[object, ...], Name]) -> str | None:
    other = done.get(entry.same_as)
    return f"it is the same as {other}, which has one" if other else None


def _no_gain(entry: Entry, known: tuple[Path, ...], machine: Machine) -> str | None:
    """Why the plan promises no gain."""
    from srhpm_plugin.planner.make import make_plan

    assert entry.model is not None
    try:
        request = HostRequest(entry.model, mmproj=entry.projector)
        plan = make_plan(request, machine=machine, known=known, command=False)
    except UserError as error:
        return error.why
    return no_gain(plan)


def no_gain(plan: LaunchPlan) -> str | None:
    """Why a plan promises nothing over the host's own server; ``None`` if it does."""
    if plan.kind == "stock":
        return next(iter(plan.reasons), "stock").removeprefix("stock: ")
    ours, theirs = plan.predicted.tok_s, plan.predicted.stock_tok_s
    if ours is not None and theirs is not None and ours <= theirs:
        return f"no gain: {ours:.1f} tokens/s expected, {theirs:.1f} without SR-HPM"
    return None

"""Installing and uninstalling as a whole: all of it, or nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .. import home
from .._version import __version__
from ..errors import UserError
from ..host import Host, Installation, Mode, Steps, Tools
from . import disk, journal, trouble
from .effects import EffectError
from .execute import BACKUP, Executor
from .journal import Begin, Journal
from .lock import one_at_a_time
from .operations import Operation
from .places import Places
from .state import (
    OWN,
    Condition,
    Record,
    discard,
    examine,
    find_again,
    installs_dir,
    read_record,
    state_folder,
)  # fmt: skip
from .tools import account_folders, find_tools, fingerprint
from .undo import Outcome, Undoer
from .words import describe, title_of


@dataclass(frozen=True)
class Job:
    """What is to be installed.

    Attributes:
        host: the plugin.
        found: the copy.
        mode: which models.
        path: the user's ``--path``.
        command: ``install --host …`` as typed, for messages.
        again: also when nothing changed since.
    """

    host: Host
    found: Installation
    mode: Mode
    path: Path | None
    command: Sequence[str]
    again: bool = False


@dataclass(frozen=True)
class Result:
    """What was done.

    Attributes:
        already: nothing, as it is in place.
        steps: of the plugin, with our own folders' before them.
        notes: what there is to know of the operations and of those taken back.
        condition: before.
    """

    already: bool
    steps: Steps
    notes: tuple[str, ...]
    condition: Condition | None = None


def foresee(job: Job) -> tuple[Result, Journal | None]:
    """What :func:`install` would do, and the journal it would take back before. Changes nothing.

    Raises:
        UserError: it could not be done.
    """
    folder = state_folder(job.host.name, job.found.root)
    tools = find_tools(job.found, folder / OWN, job.host.title, job.command)
    record = read_record(folder, job.host.name)
    condition = _condition(record, job.host)
    if condition is not None and _already(job, record, condition, tools):
        return Result(True, Steps(()), _differences(condition), condition), None
    try:
        steps, notes = _steps(job, tools)
    except UserError:
        if condition is None:
            raise
        # Our own files are in the way of planning; they are taken back before.
        steps, notes = Steps(()), ("what is then done shows once that is taken back",)
    return Result(False, steps, notes, condition), record.journal


def install(job: Job) -> Result:
    """Registers SR-HPM in a host. What an earlier attempt left is taken back first.

    Raises:
        UserError: it could not be done; everything is as before.
    """
    with _guarded(job.command, job.host.title):
        return _install(job)


def _install(job: Job) -> Result:
    folder = state_folder(job.host.name, job.found.root)
    tools = find_tools(job.found, folder / OWN, job.host.title, job.command)
    record = read_record(folder, job.host.name)
    condition = _condition(record, job.host)
    notes: tuple[str, ...] = ()
    if condition is not None:
        if _already(job, record, condition, tools):
            return Result(True, Steps(()), _differences(condition), condition)
        notes = _take_back(record, job.host, job.command)
        if record.journal is not None:
            job = replace(job, found=find_again(record.journal, job.host) or job.found)
    steps, more = _steps(job, tools)
    stands = _begin(folder, job, tools)
    executor = Executor(stands, Places(job.found.root))
    said = []
    for operation in steps.operations:
        try:
            note = executor.perform(operation)
        except BaseException as error:
            _roll_back(stands, job, operation, error)
            raise
        if note:
            said.append(note)
    try:
        stands.say_complete()
    except BaseException as error:
        _roll_back(stands, job, None, error)
        raise
    stands.close()
    return Result(False, steps, (*notes, *more, *said), condition)


def uninstall(record: Record, host: Host | None, command: Sequence[str]) -> tuple[str, ...]:
    """Takes an installation back; what there is to say of it.

    Raises:
        UserError: something is still to be taken back; typing it again goes on there.
    """
    with _guarded(command, title_of(host, record.host)):
        # Read again, now that nobody else is at it.
        return _take_back(read_record(record.folder, record.host), host, command)


@contextmanager
def _guarded(command: Sequence[str], title: str) -> Iterator[None]:
    if command[0] == "install":
        home.require_usable()
    try:
        with one_at_a_time(installs_dir(), trouble.shown(command)):
            yield
    except OSError as error:
        raise trouble.from_os(f"cannot {command[0]}", error, command, title) from error


def _condition(record: Record, host: Host) -> Condition | None:
    """How an installation stands; ``None`` where there is none."""
    if not record.folder.is_dir():
        return None
    return examine(record, host)


def _already(job: Job, record: Record, condition: Condition, tools: Tools) -> bool:
    if job.again or record.journal is None:
        return False
    begin = record.journal.begin
    return (
        condition.state in ("in place", "changed by user")
        and begin.mode == job.mode
        and begin.version == job.found.version
        and begin.program == __version__
        and dict(begin.tools) == fingerprint(tools)
    )


def _differences(condition: Condition) -> tuple[str, ...]:
    return (condition.detail,) if condition.detail else ()


def _steps(job: Job, tools: Tools) -> tuple[Steps, tuple[str, ...]]:
    steps = job.host.steps(job.found, tools, job.mode)
    folders, notes = account_folders(job.found)
    return replace(steps, operations=(*folders, *steps.operations)), notes


def _begin(folder: Path, job: Job, tools: Tools) -> Journal:
    found = job.found
    begin = Begin(
        host=job.host.name,
        root=str(found.root),
        version=found.version,
        how=found.how,
        facts=dict(found.facts),
        user=found.user,
        path=str(job.path) if job.path else None,
        mode=job.mode,
        tools=fingerprint(tools),
        when=time.time(),
        program=__version__,
    )
    try:
        for new, mode in ((folder, 0o755), (folder / BACKUP, 0o700), (folder / OWN, 0o755)):
            if not new.is_dir():
                disk.make_folder(new, mode)
        return journal.create(folder, begin)
    except BaseException:
        discard(folder)
        raise


def _roll_back(
    stands: Journal, job: Job, operation: Operation | None, error: BaseException
) -> None:
    """Takes back what was done before ``error``, and says so in our words.

    Raises:
        UserError: always, unless the error is none of the user's, which then goes its way.
    """
    outcomes = _undo_all(stands, Undoer(stands.folder, job.host.title))
    failed = [o for o in outcomes if o.how == "failed"]
    kept = [o.text for o in outcomes if o.how == "kept"]
    if not failed:
        discard(stands.folder)
    what = f"cannot install in {job.host.title}"
    if isinstance(error, OSError):
        raised = trouble.from_os(what, error, job.command, job.host.title)
    elif isinstance(error, UserError):
        raised = UserError(what, f"{error.what}: {error.why}", error.do)
    elif isinstance(error, EffectError) and operation is not None:
        again = f"srhpm-plugin {trouble.shown(job.command)}"
        why = f"{describe(operation)}: {error}"
        raised = UserError(what, why, f"see that {job.host.title} runs, then type: {again}")
    else:
        raised = None
    left = [*kept, *(o.text for o in failed)]
    if failed:
        undo = f"srhpm-plugin uninstall --host {job.host.name}"
        why = f"{raised.why if raised else type(error).__name__}; left: {'; '.join(left)}"
        raise UserError(what, why, f"mend that, then type: {undo}") from error
    if raised is not None:
        if left:
            raised = UserError(what, f"{raised.why}; left: {'; '.join(left)}", raised.do)
        raise raised from error


def _take_back(record: Record, host: Host | None, command: Sequence[str]) -> tuple[str, ...]:
    """Undoes a whole installation, whatever its state.

    Raises:
        UserError: the journal cannot be read, or something could not be undone.
    """
    what = f"cannot {command[0]}"
    title = title_of(host, record.host)
    stands = record.journal
    if stands is None:
        if record.damage:
            raise UserError(
                what, record.damage, f"its originals are in {record.folder / BACKUP}: put them back"
            )
        discard(record.folder)
        return ()
    found = find_again(stands, host)
    versions = (stands.begin.version, found.version if found else None)
    upgraded = None not in versions and versions[0] != versions[1]
    take_out = getattr(host, "without_us", None)
    outcomes = _undo_all(stands, Undoer(record.folder, title, upgraded, take_out))
    failed = [o for o in outcomes if o.how == "failed"]
    if failed and not os.path.lexists(stands.begin.root):
        # The host is gone: nobody will ever answer. What was ours in its folder went with it.
        outcomes, failed = [*outcomes, *(replace(o, how="kept") for o in failed)], []
    if failed:
        raise _left(what, failed, command, title)
    said = [o.text for o in outcomes if o.text]
    if stands.damage:
        where = record.folder / BACKUP
        raise UserError(
            what,
            f"{stands.damage}; everything else is taken back",
            f"see what is in {where}, then remove {record.folder}",
        )
    if not discard(record.folder):
        said.append(f"{record.folder} left: it holds files that are not ours")
    return tuple(said)


def _left(what: str, failed: Sequence[Outcome], command: Sequence[str], title: str) -> UserError:
    why = "; ".join(o.text for o in failed)
    error = next((o.error for o in failed if o.error), None)
    if error is not None:
        return UserError(what, why, trouble.from_os(what, error, command, title).do)
    again = f"srhpm-plugin {trouble.shown(command)}"
    return UserError(what, why, f"see that {title} runs, then type: {again}")


def _undo_all(stands: Journal, undoer: Undoer) -> list[Outcome]:
    """Takes everything back, last first. What fails does not keep the rest from it."""
    stands.say_undo()
    outcomes = []
    for number, entry in stands.standing:
        outcome = undoer.undo(entry)
        if outcome.how != "failed":
            stands.say_undone(number)
        outcomes.append(outcome)
    stands.close()
    return outcomes

"""Installing and uninstalling as a whole: all of it, or nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from .. import home
from .._version import __version__
from ..errors import UserError
from ..host import Host, Installation, Mode, Steps, Tools
from . import disk, intruder, journal, trouble
from .ahead import trouble_ahead
from .entries import Entry
from .execute import BACKUP, Executor
from .journal import Begin, Journal
from .lock import one_at_a_time
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
from .takeback import roll_back, take_back
from .tools import account_folders, find_tools, fingerprint
from .words import title_of


@dataclass(frozen=True)
class Job:
    """What is to be installed.

    Attributes:
        host: the plugin.
        found: the copy.
        mode: which models.
        path: the user's ``--path``.
        command: ``install --host …`` as typed, for messages.
    """

    host: Host
    found: Installation
    mode: Mode
    path: Path | None
    command: Sequence[str]


@dataclass(frozen=True)
class Result:
    """What was, or would be, done.

    Attributes:
        already: nothing: it is in place, and the user's changes would be in the way.
        steps: the plugin's, our own folders before them.
        notes: what there is to know of the operations and of those taken back.
        before: how an earlier installation stood; ``None`` where there was none.
        earlier: its journal.
    """

    already: bool
    steps: Steps
    notes: tuple[str, ...]
    before: Condition | None = None
    earlier: Journal | None = None


@dataclass(frozen=True)
class _Now:
    """What a job finds."""

    folder: Path
    tools: Tools
    record: Record
    before: Condition | None


def foresee(job: Job) -> Result:
    """What :func:`install` would do. Changes nothing.

    Raises:
        UserError: it could not be done; the line that installing would end with.
    """
    home.require_usable()
    now = _look(job)
    if _leave_alone(job, now):
        return _already(now)
    try:
        steps, notes = _steps(job, now.tools)
    except UserError:
        if now.before is None:
            raise
        # Our own files are in the way of planning; they are taken back before.
        steps, notes = Steps(()), ("what is done then shows once that is taken back",)
    _look_ahead(job, steps, now, now.record.journal)
    return Result(False, steps, notes, now.before, now.record.journal)


def install(job: Job) -> Result:
    """Registers SR-HPM in a host. What an earlier installation left is taken back first.

    Raises:
        UserError: it could not be done; everything is as before.
    """
    home.require_usable()
    with _alone(job.command, job.host.title):
        now = _look(job)
        if _leave_alone(job, now):
            return _already(now)
        carried: tuple[Entry, ...] = ()
        notes: tuple[str, ...] = ()
        if now.before is not None:
            _look_ahead(job, Steps(()), now, now.record.journal)
            carried, notes = take_back(now.record, job.host, job.command, carry=True)
            if now.record.journal is not None:
                job = replace(job, found=find_again(now.record.journal, job.host) or job.found)
        try:
            steps, more = _steps(job, now.tools)
            _look_ahead(job, steps, now, None)
            stands = _begin(job, now, carried)
        except BaseException:
            if not carried:
                discard(now.folder)
            raise
        said = _execute(steps, stands, job)
        return Result(False, steps, (*notes, *more, *said), now.before)


def uninstall(record: Record, host: Host | None, command: Sequence[str]) -> tuple[str, ...]:
    """Takes an installation back; what there is to say of it.

    Raises:
        UserError: something is still to be taken back; typing it again goes on there.
    """
    with _alone(command, title_of(host, record.host)):
        # Read again, now that nobody else is at it.
        return take_back(read_record(record.folder, record.host), host, command)[1]


@contextmanager
def _alone(command: Sequence[str], title: str) -> Iterator[None]:
    try:
        with one_at_a_time(installs_dir(), trouble.shown(command)):
            yield
    except OSError as error:
        raise trouble.from_os(f"cannot {command[0]}", error, command, title) from error


def _look(job: Job) -> _Now:
    folder = state_folder(job.host.name, job.found.root)
    tools = find_tools(job.found, folder / OWN, job.host.title, job.command)
    record = read_record(folder, job.host.name)
    before = examine(record, job.host) if folder.is_dir() else None
    return _Now(folder, tools, record, before)


def _leave_alone(job: Job, now: _Now) -> bool:
    """Whether nothing is new, and installing again would put the user's changes aside."""
    if now.record.journal is None or now.before is None or now.before.state != "changed by user":
        return False
    begin = now.record.journal.begin
    return (
        not hasattr(job.host, "without_us")
        and begin.mode == job.mode
        and begin.version == job.found.version
        and begin.program == __version__
        and dict(begin.tools) == fingerprint(now.tools)
    )


def _already(now: _Now) -> Result:
    assert now.before is not None
    return Result(True, Steps(()), (now.before.detail,), now.before, now.record.journal)


def _steps(job: Job, tools: Tools) -> tuple[Steps, tuple[str, ...]]:
    steps = job.host.steps(job.found, tools, job.mode)
    intruder.refuse(steps.operations, job.host.name, job.host.title, job.found.root)
    folders, notes = account_folders(job.found)
    return replace(steps, operations=(*folders, *steps.operations)), notes


def _look_ahead(job: Job, steps: Steps, now: _Now, earlier: Journal | None) -> None:
    error = trouble_ahead(steps.operations, now.folder, earlier)
    if error is not None:
        title = job.host.title
        raise trouble.from_os(f"cannot install in {title}", error, job.command, title)


def _begin(job: Job, now: _Now, carried: Sequence[Entry]) -> Journal:
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
        tools=fingerprint(now.tools),
        when=time.time(),
        program=__version__,
    )
    for new, mode in ((now.folder, 0o755), (now.folder / BACKUP, 0o700), (now.folder / OWN, 0o755)):
        if not new.is_dir():
            disk.make_folder(new, mode)
    return journal.create(now.folder, begin, carried)


def _execute(steps: Steps, stands: Journal, job: Job) -> list[str]:
    """Executes everything, or takes back what was done and raises."""
    executor = Executor(stands, Places(job.found.root))
    said = []
    try:
        for operation in steps.operations:
            note = executor.perform(operation)
            if note:
                said.append(note)
        stands.say_complete()
    except BaseException as error:
        roll_back(stands, job.host.title, job.command, error)
        raise
    stands.close()
    return said

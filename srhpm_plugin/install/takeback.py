"""Taking a whole installation back, whatever its state; also what a failed one did so far."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..errors import UserError
from ..host import Host
from . import trouble
from .effects import EffectError
from .entries import Called, Entry
from .execute import BACKUP
from .journal import Journal
from .state import Record, discard, find_again
from .undo import Outcome, Undoer
from .words import title_of


def take_back(
    record: Record, host: Host | None, command: Sequence[str], *, carry: bool = False
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Undoes an installation: what is carried over, and what there is to say.

    Args:
        carry: requests that got no answer are handed back for the next journal, and the state is
            left for it; else they fail.

    Raises:
        UserError: the journal cannot be read, or something could not be undone.
    """
    what = f"cannot {command[0]}"
    title = title_of(host, record.host)
    stands = record.journal
    if stands is None:
        if record.damage:
            backup = record.folder / BACKUP
            raise UserError(what, record.damage, f"its originals are in {backup}: put them back")
        discard(record.folder)
        return (), ()
    take_out = getattr(host, "without_us", None)
    done = undo_all(stands, Undoer(record.folder, title, _upgraded(stands, host), take_out))
    said = tuple(o.text for _, o in done if o.text)
    failed = [(e, o) for e, o in done if o.how == "failed"]
    if not os.path.lexists(stands.begin.root):
        failed = []  # nobody will ever answer; what was ours in its folder went with it
    if failed and carry and all(isinstance(e, Called) for e, _ in failed):
        return tuple(e for e, _ in reversed(failed)), said
    if failed:
        raise _left(what, [o for _, o in failed], command, title)
    if stands.damage:
        raise UserError(
            what,
            f"{stands.damage}; everything else is taken back",
            f"see what is in {record.folder / BACKUP}, then remove {record.folder}",
        )
    if not discard(record.folder):
        said = (*said, f"{record.folder} left: it holds files that are not ours")
    return (), said


def undo_all(stands: Journal, undoer: Undoer) -> list[tuple[Entry, Outcome]]:
    """Takes everything back, last first. What fails does not keep the rest from it."""
    stands.say_undo()
    done = []
    for number, entry in stands.standing:
        outcome = undoer.undo(entry)
        if outcome.how != "failed":
            stands.say_undone(number)
        done.append((entry, outcome))
    stands.close()
    return done


def roll_back(stands: Journal, title: str, command: Sequence[str], error: BaseException) -> None:
    """Takes back what was done before ``error`` stopped an installation, and says so in our words.

    Raises:
        UserError: always, unless the error is nothing to tell a user and all is as before.
    """
    outcomes = [outcome for _, outcome in undo_all(stands, Undoer(stands.folder, title))]
    failed = [o.text for o in outcomes if o.how == "failed"]
    if not failed:
        discard(stands.folder)
    what = f"cannot install in {title}"
    told = _told(what, error, title, command)
    left = [*(o.text for o in outcomes if o.how == "kept"), *failed]
    if left:
        why = f"{told.why if told else type(error).__name__}; left: {'; '.join(left)}"
        do = told.do if told else None
        if failed:
            do = f"mend that, then type: srhpm-plugin uninstall --host {stands.begin.host}"
        told = UserError(what, why, do)
    if told is not None:
        raise told from error


def _told(what: str, error: BaseException, title: str, command: Sequence[str]) -> UserError | None:
    if isinstance(error, OSError):
        return trouble.from_os(what, error, command, title)
    if isinstance(error, UserError):
        return UserError(what, f"{error.what}: {error.why}", error.do)
    if isinstance(error, EffectError):
        return UserError(what, str(error), _later(title, command))
    return None


def _upgraded(stands: Journal, host: Host | None) -> bool:
    found = find_again(stands, host)
    before, now = stands.begin.version, found.version if found else None
    return before is not None and now is not None and before != now


def _left(what: str, failed: Sequence[Outcome], command: Sequence[str], title: str) -> UserError:
    why = "; ".join(o.text for o in failed)
    error = next((o.error for o in failed if o.error), None)
    if error is not None:
        return UserError(what, why, trouble.from_os(what, error, command, title).do)
    return UserError(what, why, _later(title, command))


def _later(title: str, command: Sequence[str]) -> str:
    return f"see that {title} runs, then type: srhpm-plugin {trouble.shown(command)}"

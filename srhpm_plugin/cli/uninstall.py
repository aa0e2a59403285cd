"""``srhpm-plugin uninstall``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UserError, printable
from ..plugins import plugins
from ._hosts import absolute, host_options

if TYPE_CHECKING:
    from ..host import Host
    from ..install.state import Record


@click.command(name="uninstall")
@host_options
def command(*, name: str, path: str | None, dry_run: bool, as_json: bool) -> None:
    """Takes SR-HPM out of a host again: what was there before is there again, byte for byte.

    Files that you changed since are left as they are, with the original beside them. Without
    --path all copies of the host are meant.
    """
    from ..install.state import records
    from ..install.transaction import uninstall

    host = plugins().hosts().get(name)
    given = absolute(path)
    found = [record for record in records(name) if given is None or _lies_in(record, host, given)]
    if not found and host is None:
        plugins().host(name)  # says which there are
    typed = ["uninstall", "--host", name, *(["--path", str(given)] if given else [])]
    done, failed = [], []
    for record in found:
        try:
            notes = () if dry_run else uninstall(record, host, typed)
            done.append(_report(record, dry_run, notes))
        except UserError as error:
            failed.append(error)
    if as_json:
        click.echo(json.dumps({"host": name, "dry_run": dry_run, "uninstalled": done}, indent=2))
    else:
        title = host.title if host else name
        if not found:
            others = [str(r.root) for r in records(name) if r.root]
            where = f"{title} at {given}" if others else title
            click.echo(printable(f"SR-HPM is not in {where}; nothing to do."))
            for place in others:
                click.echo(printable(f"note: it is in {place}"))
        for report in done:
            for line in _lines(title, report, dry_run):
                click.echo(printable(line))
    for other in failed[:-1]:
        click.echo(f"error: {other.line()}", err=True)
    if failed:
        raise failed[-1]


def _lies_in(record: Record, host: Host | None, path: Path) -> bool:
    """Whether an installation is the one that ``--path`` means."""
    journal = record.journal
    if journal is None:
        return True  # it cannot be told; nothing of it is in place, or it must be looked at anyway
    if str(path) in (journal.begin.root, journal.begin.path):
        return True
    try:
        return host is not None and any(str(f.root) == journal.begin.root for f in host.find(path))
    except UserError:
        return False


def _report(record: Record, dry_run: bool, notes: tuple[str, ...]) -> dict[str, Any]:
    from ..install.words import describe_undo

    steps = []
    if dry_run and record.journal is not None:
        steps = [w for _, e in record.journal.standing if (w := describe_undo(e))]
    root = str(record.root) if record.root else None
    return {"root": root, "operations": steps, "notes": list(notes)}


def _lines(title: str, report: dict[str, Any], dry_run: bool) -> list[str]:
    where = f"{title} ({report['root']})" if report["root"] else title
    if dry_run:
        head = f"In {where} this would be done; nothing was changed:"
        return [head, *(f"  {words}" for words in report["operations"])]
    return [f"SR-HPM is out of {where}.", *(f"note: {note}" for note in report["notes"])]

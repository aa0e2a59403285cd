"""``srhpm-plugin status``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Set
from datetime import datetime
from typing import Any

import click

from ..errors import UserError, printable
from ..host import Host
from ..plugins import plugins

SHOWN = 10


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--retry", metavar="MODEL", help="Let a model that failed run on SR-HPM again.")
def command(as_json: bool, retry: str | None) -> None:
    """Shows where SR-HPM is installed, how that stands, and the last launches."""
    from ..dropin.status import blocked_lines, blocked_models, launch_lines, launches

    if retry is not None:
        _retry(retry)
        return
    rows = installations()
    last = launches(SHOWN)
    blocked = blocked_models()
    if as_json:
        found = {"installations": rows, "launches": last, "handed_over": blocked}
        click.echo(json.dumps(found, indent=2))
        return
    if not rows:
        click.echo("SR-HPM is in no host; see what is here with: srhpm-plugin hosts")
    for row in rows:
        version = f" {row['version']}" if row["version"] else ""
        click.echo(printable(f"{row['title']}{version}  {row['root'] or row['state_folder']}"))
        when = f", mode {row['mode']}, since {row['since']}" if row["since"] else ""
        detail = f": {row['detail']}" if row["detail"] else ""
        click.echo(printable(f"  {row['state']}{when}{detail}"))
        if row["fix"]:
            click.echo(printable(f"  type: {row['fix']}"))
    for line in (*launch_lines(last), *blocked_lines(blocked)):
        click.echo(printable(line))


def _retry(model: str) -> None:
    """Forgets how the last starts of a model ended.

    Raises:
        UserError: no such model is handed over, or the records are another user's.
    """
    from ..dropin import records

    try:
        cleared = records.clear(model)
    except OSError as error:
        raise UserError(
            f"cannot clear {model}", error.strerror or str(error), "do so as the host's user"
        ) from None
    if not cleared:
        why = "no model of this name is handed over after a failure"
        raise UserError(f"cannot clear {model}", why, "see which are: srhpm-plugin status")
    click.echo(printable(f"the next start of {model} runs on SR-HPM again"))


def installations() -> list[dict[str, Any]]:
    """Every installation with its state, for ``status`` and ``doctor``."""
    from ..install.state import examine, records
    from ..install.trouble import shown
    from ..install.words import title_of

    hosts = plugins().hosts()
    rows = []
    for record in records():
        host = hosts.get(record.host)
        condition = examine(record, host)
        begin = record.journal.begin if record.journal else None
        found = condition.found
        typed = ["--host", record.host, *(["--path", begin.path] if begin and begin.path else [])]
        mode = ["--mode", begin.mode] if begin and begin.mode != "all" else []
        install = f"srhpm-plugin {shown(['install', *typed, *mode])}"
        uninstall = f"srhpm-plugin {shown(['uninstall', *typed])}"
        fix = {
            "damaged note": install,
            "wiped by an upgrade": install,
            "partly done": uninstall if _leaving(record) else install,
            "host gone": uninstall,
            "damaged": uninstall,
        }.get(condition.state)
        rows.append(
            {
                "host": record.host,
                "title": title_of(host, record.host),
                "root": begin.root if begin else None,
                "version": found.version if found else begin.version if begin else None,
                "installed_for": begin.version if begin else None,
                "mode": begin.mode if begin else None,
                "since": _date(begin.when) if begin else None,
                "state": condition.state,
                "detail": condition.detail,
                "fix": fix,
                "tools": dict(begin.tools) if begin else {},
                "state_folder": str(record.folder),
            }
        )
    return [*rows, *_unknown(hosts.values(), {row["root"] for row in rows})]


def _unknown(hosts: Iterable[Host], known: Set[Any]) -> Iterator[dict[str, Any]]:
    """Copies of hosts that we are in, put there by an installation of which nothing is known."""
    for host in hosts:
        try:
            found = [c for c in host.find(None) if str(c.root) not in known and host.registered(c)]
        except Exception:  # a plugin's fault must not hide the rest
            continue
        for copy in found:
            yield {
                "host": host.name,
                "title": host.title,
                "root": str(copy.root),
                "version": copy.version,
                "installed_for": None,
                "mode": None,
                "since": None,
                "state": "not known here",
                "detail": "another SRHPM_HOME put SR-HPM there, or its folder is gone since; its "
                "own server runs then",
                "fix": f"srhpm-plugin install --host {host.name}",
                "tools": {},
                "state_folder": None,
            }


def _leaving(record: Any) -> bool:
    return record.journal is not None and record.journal.undoing


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "minutes")

"""``srhpm-plugin status``."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import click

from ..errors import printable
from ..plugins import plugins

SHOWN = 10


@click.command(name="status")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Shows where SR-HPM is installed, how that stands, and the last launches."""
    from ..dropin.status import launch_lines, launches

    rows = installations()
    last = launches(SHOWN)
    if as_json:
        click.echo(json.dumps({"installations": rows, "launches": last}, indent=2))
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
    for line in launch_lines(last):
        click.echo(printable(line))


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
    return rows


def _leaving(record: Any) -> bool:
    return record.journal is not None and record.journal.undoing


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "minutes")

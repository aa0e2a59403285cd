"""``srhpm-plugin hosts``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import printable
from ..plugins import plugins
from ._hosts import copies

_ABSENT = "not found here"
_BY_URL = "set by URL"


@click.command(name="hosts")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Lists the hosts on this machine, and whether and how SR-HPM can be installed there."""
    from ..install.state import records

    rows: list[dict[str, Any]] = []
    missing: list[dict[str, str]] = []
    try:
        known = {str(record.root) for record in records()}
    except OSError:  # another user's
        known = None
    for host, found, why in copies():
        if not found:
            absent = _BY_URL if hasattr(host, "by_hand") else _ABSENT
            missing.append({"host": host.name, "title": host.title, "why": why or absent})
        for copy in found:
            rows.append(
                {
                    "host": host.name,
                    "title": host.title,
                    "version": copy.version,
                    "root": str(copy.root),
                    "installable": copy.installable,
                    "how": copy.how,
                    "user": copy.user,
                    "installed": host.registered(copy),
                    "known": known is None or str(copy.root) in known,
                }
            )
    if as_json:
        click.echo(json.dumps({"hosts": rows, "missing": missing}, indent=2))
    else:
        _show(rows, missing)


def _install(row: dict[str, Any]) -> list[str]:
    """The command for this copy: without ``--path`` it means the first found that can take us."""
    found = plugins().host(row["host"]).find(None)
    first = next((str(copy.root) for copy in found if copy.installable), None)
    words = ["install", "--host", row["host"]]
    return words if row["root"] == first else [*words, "--path", row["root"]]


def _show(rows: list[dict[str, Any]], missing: list[dict[str, str]]) -> None:
    from ..install.trouble import shown

    if not plugins().hosts():
        click.echo("No plugin for a host is loaded; see: srhpm-plugin doctor")
    for row in rows:
        version = f" {row['version']}" if row["version"] else ""
        click.echo(printable(f"{row['title']}{version}  {row['root']}"))
        if row["installed"] and not row["known"]:
            does = "SR-HPM is in it, put there by no installation known here: srhpm-plugin status"
        elif row["installed"]:
            does = f"SR-HPM is in it; take it out with: srhpm-plugin uninstall --host {row['host']}"
        elif row["installable"]:
            does = f"{row['how']}; type: srhpm-plugin {shown(_install(row))}"
        else:
            does = f"not possible: {row['how']}"
        click.echo(printable(f"  {does}"))
    looked = [f"{m['title']} ({m['host']})" for m in missing if m["why"] == _ABSENT]
    if looked:
        click.echo(printable(f"Not found here: {', '.join(looked)}"))
        click.echo("One that lies elsewhere: srhpm-plugin install --host NAME --path DIR")
    told = [f"{m['title']} ({m['host']})" for m in missing if m["why"] == _BY_URL]
    if told:
        click.echo(printable(f"Set by URL: {', '.join(told)}"))
        click.echo("How each is told ours: srhpm-plugin install --host NAME")
    for entry in missing:
        if entry["why"] not in (_ABSENT, _BY_URL):
            click.echo(printable(f"{entry['title']}: {entry['why']}"))

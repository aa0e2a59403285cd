"""``srhpm-plugin install``."""

from __future__ import annotations

import json
from typing import Any

import click

from ..errors import printable
from ..host import Host, Mode, Steps
from ..plugins import plugins
from ._hosts import absolute, find_one, host_options


@click.command(name="install")
@host_options
@click.option(
    "--mode",
    type=click.Choice(["all", "select"]),
    default="all",
    show_default=True,
    help="Which models run on SR-HPM: all that gain by it, or those you pick in the host.",
)
def command(*, name: str, path: str | None, mode: Mode, dry_run: bool, as_json: bool) -> None:
    """Registers SR-HPM in a host; `uninstall` takes it back byte for byte.

    Stopped half way, it is mended by typing it again. An installation that an upgrade of the host
    has wiped is put in place again.
    """
    from ..install.transaction import Job, foresee, install

    host = plugins().host(name)
    given = absolute(path)
    by_hand = getattr(host, "by_hand", None)
    if by_hand is not None and not any(copy.installable for copy in host.find(given)):
        _show_by_hand(host, by_hand(), as_json)
        return
    found = find_one(host, given)
    typed = ["install", "--host", name]
    typed += ["--path", str(given)] if given else []
    typed += ["--mode", mode] if mode != "all" else []
    job = Job(host, found, mode, given, typed)
    result = foresee(job) if dry_run else install(job)
    report = _report(job, result, dry_run)
    if as_json:
        click.echo(json.dumps(report, indent=2))
    else:
        _show(host.title, report)


def _show_by_hand(host: Host, steps: Steps, as_json: bool) -> None:
    """Nothing is installed: the user tells the client where to ask."""
    if as_json:
        said = {"host": host.name, "by_hand": list(steps.pick), "notes": list(steps.notes)}
        click.echo(json.dumps(said, indent=2))
        return
    for line in (*steps.pick, *(f"note: {note}" for note in steps.notes)):
        click.echo(printable(line))


def _report(job: Any, result: Any, dry_run: bool) -> dict[str, Any]:
    from ..install.words import describe_undo, operation_json

    earlier = []
    if dry_run and not result.already and result.earlier is not None:
        earlier = [w for _, e in result.earlier.standing if (w := describe_undo(e))]
    return {
        "host": job.host.name,
        "root": str(job.found.root),
        "version": job.found.version,
        "mode": job.mode,
        "dry_run": dry_run,
        "already": result.already,
        "before": result.before.state if result.before else None,
        "first_taken_back": earlier,
        "operations": [operation_json(o) for o in result.steps.operations],
        "pick": list(result.steps.pick),
        "notes": list(result.notes) + list(result.steps.notes),
    }


def _show(title: str, report: dict[str, Any]) -> None:
    where = f"{title} {report['version'] or ''}".rstrip() + f" ({report['root']})"
    lines = []
    if report["already"]:
        lines.append(f"SR-HPM is in {where} already; you changed it since: {report['notes'][0]}")
        lines.append(f"To install anew: srhpm-plugin uninstall --host {report['host']}")
        report = {**report, "notes": []}
    elif report["dry_run"]:
        lines.append(f"In {where} this would be done; nothing was changed:")
        lines += [f"  first {words}" for words in report["first_taken_back"]]
        lines += [f"  {operation['words']}" for operation in report["operations"]]
    else:
        lines.append(f"SR-HPM is now in {where}.")
    lines += [f"To use it: {sentence}" for sentence in report["pick"]]
    lines += [f"note: {note}" for note in report["notes"]]
    for line in lines:
        click.echo(printable(line))

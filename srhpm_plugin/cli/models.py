"""``srhpm-plugin models``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from ..plan import Predicted
    from ..planner.inventory import Entry


@click.command(name="models")
@click.option("--host", help="Only the models of this host, e.g. ollama.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(host: str | None, as_json: bool) -> None:
    """Lists the models found on this machine with plan kind and drafter.

    Looked at: the hosts that `srhpm-plugin hosts` finds, the folders in SRHPM_MODELS, those in the
    configuration, our own, and Hugging Face's cache. Files called .gguf that hold no model are
    listed as broken, with the reason.
    """
    from ..machine.probe import probe
    from ..planner.hosted import hosted
    from ..planner.inventory import inventory
    from ..planner.printing import console, plain
    from ..planner.sources import Survey, survey
    from ..plugins import plugins

    of_hosts, troubles = hosted(host)
    for trouble in troubles:
        click.echo(f"warning: {trouble}", err=True)
    found = survey() if host is None else Survey((), (), 0, ())
    for who, place in found.missing:
        click.echo(f"warning: {who} names {place}, which is not there", err=True)
    paths = (*found.models, *found.broken, *of_hosts)
    server = plugins().backend("srhpm").server()
    entries = inventory(found.models, probe(server), found.broken, of_hosts) if paths else []
    if as_json:
        report = {
            "models": [e.to_json() for e in entries],
            "ignored": found.ignored,
            "missing": [{"named_by": who, "path": str(place)} for who, place in found.missing],
        }
        click.echo(json.dumps(report, indent=2))
        return
    out = console()
    if entries:
        _show(entries, out)
    elif host is not None:
        out.print(plain(f"No models of {host} found."))
    else:
        out.print(
            plain("No models found. Name folders of .gguf files in SRHPM_MODELS, or type:"),
            plain("srhpm-plugin plan PATH"),
        )
    if found.ignored:
        files = "1 other file" if found.ignored == 1 else f"{found.ignored} other files"
        out.print()
        out.print(plain(f"{files} in the folders you named: no GGUF, or no language model"))


def _show(entries: list[Entry], out: Console) -> None:
    from rich.table import Table

    from ..planner.names import short_name
    from ..planner.printing import emit, plain
    from ..planner.show import draft_name
    from ..planner.units import size

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    by_host = any(e.host for e in entries)
    titles: tuple[str, ...] = ("model", "arch", "size", "kind", "drafter", "tokens/s", "stock")
    titles += ("host",) * by_host
    for title in titles:
        table.add_column(title, overflow="fold", justify="right" if title == "size" else "left")
    notes: list[str] = []
    for e in entries:
        cells = [e.called or short_name(e.path), *("-" * 6)]
        if e.model is None:
            cells[3] = "broken" if e.host is None else "not for us"
        else:
            cells[1:3] = e.model.arch, size(e.model.nbytes)
        if e.plan is not None:
            draft = draft_name(e.plan.draft) if e.plan.draft else "none"
            cells[3:] = e.plan.kind, draft, *_speeds(e.plan.predicted)
        elif e.model is not None:
            cells[3] = "does not fit"
        if by_host:
            cells.append(f"{e.host}, twin" if e.twin else e.host or "")
        table.add_row(*map(plain, cells))
        if e.reason:
            notes.append(f"{e.called or e.path}: {e.reason}")
    emit(out, table)
    if any(e.plan and e.plan.predicted.tok_s is None for e in entries):
        from ..calibrate import load

        if load() is None:
            notes.append(
                "speeds are predicted once this machine was measured: srhpm-plugin calibrate"
            )
    if notes:
        out.print()
        for note in notes:
            out.print(plain(note), soft_wrap=True)


def _speeds(predicted: Predicted) -> tuple[str, str]:
    """Ours and an unpatched server's; what was not measured but predicted has a tilde."""
    if predicted.tok_s is None:
        return "not measured", "-"
    about = "" if predicted.basis == "measured" else "~"
    stock = predicted.stock_tok_s
    return f"{about}{predicted.tok_s:.1f}", "-" if stock is None else f"~{stock:.1f}"

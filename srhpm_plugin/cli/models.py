"""``srhpm-plugin models``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from ..planner.inventory import Entry


@click.command(name="models")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Lists the models found on this machine with plan kind and drafter.

    Looked at: the folders in SRHPM_MODELS, those in the configuration, our own, and Hugging
    Face's cache. Files called .gguf that hold no model are listed as broken, with the reason.
    """
    from ..machine.probe import probe
    from ..planner.inventory import inventory
    from ..planner.show import console, plain
    from ..planner.sources import survey
    from ..plugins import plugins

    found = survey()
    for who, place in found.missing:
        click.echo(f"warning: {who} names {place}, which is not there", err=True)
    paths = (*found.models, *found.broken)
    server = plugins().backend("srhpm").server()
    entries = inventory(found.models, probe(server), found.broken) if paths else []
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
    from ..planner.show import draft_name, emit, plain
    from ..planner.units import size

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("model", "arch", "size", "kind", "drafter", "tokens/s"):
        table.add_column(title, overflow="fold", justify="right" if title == "size" else "left")
    notes: list[str] = []
    for e in entries:
        name = short_name(e.path)
        if e.model is None:
            table.add_row(plain(name), "-", "-", "broken", "-", "-")
        elif e.plan is None:
            table.add_row(
                plain(name), plain(e.model.arch), size(e.model.nbytes), "does not fit", "-", "-"
            )
        else:
            draft = draft_name(e.plan.draft) if e.plan.draft else "none"
            speed = e.plan.predicted.tok_s
            table.add_row(
                plain(name),
                plain(e.model.arch),
                size(e.model.nbytes),
                e.plan.kind,
                plain(draft),
                "not measured" if speed is None else f"{speed:.1f}",
            )
        if e.reason:
            notes.append(f"{e.path}: {e.reason}")
    emit(out, table)
    if notes:
        out.print()
        for note in notes:
            out.print(plain(note), soft_wrap=True)

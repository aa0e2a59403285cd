"""What ``srhpm-plugin doctor`` says of installations in hosts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..native.locate import find_program, find_server
from ._check import Check
from .status import installations

_BROKEN = ("damaged note", "partly done", "damaged")


def check_installations() -> Iterator[Check]:
    """Installations that are unfinished, wiped or changed, or that lack what they start."""
    rows = installations()
    for row in rows:
        name = f"in {row['title']}"
        where = row["root"] or row["state_folder"]
        detail = f"{row['state']}: {row['detail'] or where}"
        if row["state"] in _BROKEN:
            yield Check(name, "broken", f"{where}: {detail}", row["fix"])
            continue
        if row["state"] != "in place":
            yield Check(name, "warning", f"{where}: {detail}", row["fix"])
            continue
        lacking = list(_lacking(row["tools"]))
        for what, fix in lacking:
            again = f"srhpm-plugin install --host {row['host']}"
            text = f"{what}, so {row['title']} runs its own server"
            yield Check(name, "broken", text, fix or again)
        if not lacking:
            yield Check(name, "ok", f"in place: {where}")
    if not rows:
        yield Check("installations", "ok", "in no host; see: srhpm-plugin hosts")


def _lacking(tools: dict[str, str]) -> Iterator[tuple[str, str | None]]:
    """What an installation starts and is not there, each with the command that brings it."""
    python = tools.get("python", "")
    if not Path(python).is_file():
        yield f"its Python {python} is gone", None
    if find_server() is None or find_program("srhpm-llama-server") is None:
        yield "the server is not built", "srhpm-plugin native build"

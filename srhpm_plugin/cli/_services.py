"""What ``srhpm-plugin doctor`` says of variables that services hand to the servers they start."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..dropin.flags import FlagTable, flags_of
from ..machine.types import Machine
from ..systemd import FOLDERS, assignments, settings_in
from ._check import Check

_PREFIX = "LLAMA_ARG_"
_THREADS = ("LLAMA_ARG_THREADS", "LLAMA_ARG_THREADS_BATCH")
_MOST_FILES = 2000


def check_services(
    machine: Machine, server: Path | None, folders: Sequence[Path] | None = None
) -> Iterator[Check]:
    """``LLAMA_ARG_*`` in systemd's units: they are options of every llama-server of that service.

    Args:
        server: ours, whose options are the known ones; without it no name is called unknown.
        folders: of units; those of the system and of this user when not given.
    """
    table: FlagTable | None = None
    files, found = 0, 0
    for file in _units(_folders() if folders is None else folders):
        files += 1
        for name, value in _variables(file):
            found += 1
            if table is None and server is not None:
                table = flags_of(server)
            detail = f"{name}={value} in {file}: {_verdict(name, value, machine, table)}"
            yield Check("services", "warning", detail, _mend(file))
    if files and not found:
        yield Check("services", "ok", "no LLAMA_ARG_* in systemd's units")


def _folders() -> list[Path]:
    return [*FOLDERS, Path.home() / ".config" / "systemd" / "user"]


def _units(folders: Sequence[Path]) -> Iterator[Path]:
    """Services and their drop-ins, each file once."""
    seen: set[Path] = set()
    for folder in folders:
        try:
            files = sorted([*folder.glob("*.service"), *folder.glob("*.service.d/*.conf")])
        except OSError:
            continue
        for file in files[:_MOST_FILES]:
            real = file.resolve()  # /lib may be /usr/lib, and enabling a service links to it
            if real not in seen:
                seen.add(real)
                yield file


def _variables(file: Path) -> Iterator[tuple[str, str]]:
    for key, value in settings_in(file):
        if key == "Environment":
            for name, given in assignments(value).items():
                if name.startswith(_PREFIX):
                    yield name, given


def _verdict(name: str, value: str, machine: Machine, table: FlagTable | None) -> str:
    if not value:
        return "it is empty, and a server may exit on it"
    if table is not None and name not in table.by_env:
        near = difflib.get_close_matches(name, table.by_env, 1)
        return "no option of the server" + (f", did you mean {near[0]}" if near else "")
    ours = machine.cpu.usable_performance
    if name in _THREADS and value.isdecimal() and int(value) != ours:
        return f"plans here use {ours} threads, one per performance core; this one is kept instead"
    return "it is kept, so that plans cannot choose"


def _mend(file: Path) -> str:
    """Opens the file; what is read at the next start is the changed one."""
    unit = file.parent.name.removesuffix(".d") if file.suffix == ".conf" else file.name
    user = " --user" if file.is_relative_to(Path.home()) else ""
    edit, control = (
        ("${EDITOR:-nano}", "systemctl --user") if user else ("sudoedit", "sudo systemctl")
    )
    path, unit = shlex.quote(str(file)), shlex.quote(unit)
    return f"{edit} {path} && {control} daemon-reload && {control} restart {unit}"

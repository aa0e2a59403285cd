"""What an installation puts in place: found, and checked for the account that will run it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import url2pathname

import click
import pluggy

from .. import home
from ..errors import UserError
from ..host import Installation, Tools
from ..native.locate import find_program, find_server
from . import disk
from .accounts import READ, SEARCH, WRITE, Account, account, is_me
from .operations import MakeFolder, Operation
from .trouble import shown

DROPIN = "srhpm-llama-server"
_PLACE, _STATE = "/opt/srhpm", "/var/lib/srhpm"


def find_tools(found: Installation, state: Path, title: str, command: Sequence[str]) -> Tools:
    """Everything that an installation of ``found`` may use.

    Args:
        state: the installation's folder for the plugin's own files.
        title: the host's, for messages.
        command: ``install --host …``, for messages.

    Raises:
        UserError: something is not built yet, or the host's account cannot read it.
    """
    server, dropin = find_server(), find_program(DROPIN)
    if server is None or dropin is None:
        why = "the server is not built yet"
        if server is not None:
            why = f"there is no {DROPIN} beside {server}"
        build = "srhpm-plugin native build"
        raise UserError(
            f"cannot install in {title}", why, f"type: {build} && srhpm-plugin {shown(command)}"
        )
    named = os.environ.get("SRHPM_HOME")
    tools = Tools(
        dropin=dropin,
        python=Path(sys.executable),
        home=home.data_dir().parent if named else None,
        server_folder=server.parent,
        state=state,
    )
    _check_isolated(tools.python, title)
    _check_account(found, tools, title, command)
    return tools


def _check_isolated(python: Path, title: str) -> None:
    """The drop-in runs Python with ``-I``, so that nothing of the host's gets into it. That leaves
    out packages which ``pip install --user`` or ``PYTHONPATH`` bring.

    Raises:
        UserError: our package is one of these.
    """
    if not _isolated(python):
        venv = home.data_dir() / "venv"
        raise UserError(
            f"cannot install in {title}",
            f"{python} does not find srhpm-plugin when the host starts it (pip install --user, or "
            "PYTHONPATH)",
            f"put it into an environment of its own: python3 -m venv {shlex.quote(str(venv))} && "
            f"{shlex.quote(str(venv / 'bin' / 'pip'))} install {shlex.quote(_package())}",
        )


@cache
def _isolated(python: Path) -> bool:
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", "import srhpm_plugin.dropin"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def fingerprint(tools: Tools) -> dict[str, str]:
    """What tells whether an installation has the tools of today."""
    return {
        "dropin": disk.digest(Path(os.path.realpath(tools.dropin))) or "",
        "python": str(tools.python),
        "home": str(tools.home or ""),
        "server_folder": str(tools.server_folder),
    }


def written_by_dropin() -> tuple[Path, ...]:
    """Folders that the drop-in writes to, as the account that the host runs as."""
    return (home.data_dir() / "launches", home.cache_dir() / "dropin")


def account_folders(found: Installation) -> tuple[tuple[Operation, ...], tuple[str, ...]]:
    """Operations that give the host's account its folders of ours, and what cannot be given."""
    user = _other(found)
    if user is None:
        return (), ()
    operations, notes = [], []
    for folder in written_by_dropin():
        if not folder.exists():
            operations.append(MakeFolder(folder, 0o755, user.name))
        elif not user.may(folder, READ | WRITE | SEARCH):
            notes.append(
                f"{user.name} cannot write to {folder}, so its launches are not shown; "
                f"type: sudo chown {user.name} {shlex.quote(str(folder))}"
            )
    return tuple(operations), tuple(notes)


def _other(found: Installation) -> Account | None:
    if found.user is None or is_me(found.user):
        return None
    return account(found.user)


def _check_account(found: Installation, tools: Tools, title: str, command: Sequence[str]) -> None:
    user = _other(found)
    if user is None:
        return
    if tools.home is None:
        why = "its own folders hold no server of ours"
    else:
        barred = next((b for path, r in _needed(tools) if (b := user.barred(path, r))), None)
        if barred is None:
            return
        why = f"it cannot read {barred}"
    raise UserError(
        f"cannot install in {title}",
        f"it runs as {user.name}, and {why}",
        f"put us where it can: {_recipe(command)}",
    )


def _needed(tools: Tools) -> list[tuple[Path, int]]:
    package = Path(__file__).parents[1]
    return [
        (tools.python, READ | SEARCH),
        (Path(os.__file__), READ),
        (package, READ | SEARCH),
        (Path(__file__), READ),
        (Path(pluggy.__file__), READ),
        (Path(click.__file__), READ),
        (tools.server_folder, READ | SEARCH),
        *((path, READ | SEARCH) for path in (tools.dropin, *_server(tools))),
    ]


def _server(tools: Tools) -> list[Path]:
    found = find_server()
    return [found] if found and found.parent == tools.server_folder else []


def _recipe(command: Sequence[str]) -> str:
    """The commands for a place that all accounts can read."""
    program = f"sudo env SRHPM_HOME={_STATE} {_PLACE}/bin/srhpm-plugin"
    return " && ".join(
        (
            f"sudo python3 -m venv {_PLACE}",
            f"sudo {_PLACE}/bin/pip install {shlex.quote(_package())}",
            f"{program} native build",
            f"{program} {shlex.join(command)}",
        )
    )


def _package() -> str:
    """Where this package was installed from, for pip."""
    try:
        text = metadata.distribution("srhpm-plugin").read_text("direct_url.json")
        url = urlparse(json.loads(text or "{}").get("url", ""))
    except (metadata.PackageNotFoundError, ValueError):
        return "srhpm-plugin"
    if url.scheme == "file":
        return url2pathname(unquote(url.path))
    return "srhpm-plugin"

"""What ``install``, ``uninstall``, ``hosts``, ``status`` and ``models`` share: finding hosts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from ..errors import UserError
from ..files import expand
from ..host import Host, Installation
from ..plugins import plugins

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """Which host, and which copy of it."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, change nothing."),
        click.option("--path", metavar="DIR", help="Where the host is, if not found."),
        click.option("--host", "name", required=True, help="The host; see: srhpm-plugin hosts."),
    ):
        function = option(function)
    return function


def absolute(path: str | None) -> Path | None:
    """The user's ``--path`` as it is kept.

    Raises:
        UserError: it is empty or holds a NUL.
    """
    if path is None:
        return None
    if not path.strip() or "\0" in path:
        raise UserError("cannot use --path", "it names no folder", "name the host's folder")
    return expand(path).absolute()


def find_one(host: Host, path: Path | None) -> Installation:
    """The copy to install in: the first that can take us.

    Raises:
        UserError: there is none, or none can.
    """
    found = list(host.find(path))
    for copy in found:
        if copy.installable:
            return copy
    what = f"cannot install in {host.title}"
    if found:
        raise UserError(what, f"{found[0].root}: {found[0].how}")
    if path is not None:
        raise UserError(what, f"there is none in {path}", "name its folder: --path DIR")
    raise UserError(what, "it is not found here", "if it is here, name its folder: --path DIR")


def copies() -> Iterator[tuple[Host, list[Installation], str | None]]:
    """All hosts with their copies, and what kept one from being looked for."""
    from ..install.state import copies as known

    for _, host in sorted(plugins().hosts().items()):
        try:
            yield host, list(known(host)), None
        except UserError as error:
            yield host, [], error.line()

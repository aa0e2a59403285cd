"""An unpatched llama-server: baseline of every comparison, and what is left when ours is not
wanted."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from srhpm_plugin.backend import Backend, Command
from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.files import expand
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.native.locate import find_server
from srhpm_plugin.plan import LaunchPlan

from .arguments import server_argv

NAME = "stock"
VARIABLE = "SRHPM_STOCK_SERVER"

# Everything of ours switched off, whatever the environment says. An unpatched server does not
# know these variables.
OFF = {
    "SRHPM_KERNELS": "off",
    "SRHPM_EXACT": "0",
    "SRHPM_DRAFTER_ROWS": "twice",
    "SRHPM_PASS_TOKENS": "0",
    "SRHPM_DRAFT_N_MIN": "0",
    "SRHPM_DRAFT_LENGTHS": "any",
    "SRHPM_RELAX": "0",
    "SRHPM_ROLLBACK": "off",
    "SRHPM_OFFLOAD": "any",
    "SRHPM_GPU_LAYERS": "",
}


@dataclass(frozen=True)
class StockServer:
    """The program and, in words, which one it is."""

    path: Path
    origin: str


def find_stock() -> StockServer | None:
    """``SRHPM_STOCK_SERVER``, else ``llama-server`` on ``PATH``, else the patched one.

    Raises:
        UserError: ``SRHPM_STOCK_SERVER`` (or ``SRHPM_SERVER``) is set and names no program.
    """
    named = os.environ.get(VARIABLE)
    if named:
        path = expand(named)
        if shutil.which(str(path)) is None:  # Python below 3.12 takes no Path there on Windows
            raise UserError(
                "no stock server", f"{VARIABLE} names {path}, which is no program", "unset it"
            )
        return StockServer(path, f"named by {VARIABLE}")
    patched = find_server()
    found = shutil.which("llama-server")
    if found is not None and not _same(Path(found), patched) and not _dropin(Path(found)):
        return StockServer(Path(found), "llama-server on PATH")
    if patched is not None:
        return StockServer(patched, "the patched server with everything of ours switched off")
    return None


def _dropin(path: Path) -> bool:
    """Whether the program is our drop-in, which would start the patched server."""
    return Note.path_for(path).exists() or Note.path_for(path.resolve()).exists()


def _same(path: Path, other: Path | None) -> bool:
    try:
        return other is not None and path.samefile(other)
    except OSError:
        return False


class StockBackend:
    """See :class:`srhpm_plugin.backend.Backend`."""

    @property
    def name(self) -> str:
        """``stock``."""
        return NAME

    def server(self) -> Path | None:
        """The program of :func:`find_stock`."""
        found = find_stock()
        return found.path if found else None

    def missing(self) -> str:
        """The command that builds a server which can be its own baseline."""
        return "srhpm-plugin native build"

    def command(self, plan: LaunchPlan) -> Command:
        """``argv`` (without host and port) and environment for the plan.

        Of the drafter's numbers upstream has ``n_max`` and ``p_min``; it has nothing that means
        our ``n_min``, and no ``relax``.

        Raises:
            UserError: there is no server program, or the plan asks for ``relax``.
        """
        if plan.relax > 0:
            raise UserError(
                "--relax needs the patched server",
                "an unpatched one has no such option",
                "leave it out or choose the backend srhpm",
            )
        program = self.server()
        if program is None:
            raise UserError(
                "no stock server",
                f"there is no llama-server on PATH and {VARIABLE} is not set",
                f"set it, or type: {self.missing()}",
            )
        return Command(tuple(server_argv(plan, program)), OFF)

    def ready_url(self, base_url: str) -> str:
        """llama-server answers 503 there while it loads."""
        return base_url.rstrip("/") + "/health"

    def exactness(self, model_types: tuple[str, ...], plan: LaunchPlan) -> tuple[str, ...]:
        """Empty: upstream picks kernels by the number of tokens in a pass."""
        return ()


@hookimpl
def srhpm_backends() -> Iterable[Backend]:
    """The unpatched server."""
    return (StockBackend(),)

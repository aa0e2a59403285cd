"""The command line. Commands are imported when they are used, so that start-up stays short."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

from .._version import __version__
from ..errors import UserError

# name -> module below srhpm_plugin.cli holding a click command called `command`
COMMANDS = {
    "bench": "bench",
    "calibrate": "calibrate",
    "demo": "demo",
    "doctor": "doctor",
    "hosts": "hosts",
    "install": "install",
    "launch": "launch",
    "models": "models",
    "native": "native",
    "plan": "plan",
    "requantize": "requantize",
    "serve": "serve",
    "status": "status",
    "uninstall": "uninstall",
    "verify": "verify",
}


class LazyGroup(click.Group):
    """A group whose commands are looked up in :data:`COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the module of ``cmd_name``."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}")
        command: click.Command = module.command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="srhpm-plugin")
def cli() -> None:
    """SR-HPM: exact speculative decoding for models bigger than the GPU."""


def main(args: list[str] | None = None) -> Any:
    """Entry point: every expected failure is one line on stderr and exit code 1."""
    try:
        return cli.main(args=args, prog_name="srhpm-plugin", standalone_mode=True)
    except UserError as error:
        click.echo(f"error: {error.line()}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # `srhpm-plugin models | head`: the reader has had enough; not an error.
        sys.stdout = None
        sys.exit(0)

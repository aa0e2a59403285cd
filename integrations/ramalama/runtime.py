"""The runtime ``srhpm`` of RamaLama: its llama.cpp runtime with our program for ``llama-server``.

This file is copied into RamaLama's own Python environment, beside the program it starts. It has
nothing of ours to import, and nothing in it may fail: RamaLama loads all runtimes at every start
and ends with the first that raises.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

NAME = "srhpm"


def runtime() -> Any:
    """RamaLama calls the entry point for an object of its class for runtimes."""
    try:
        from ramalama.plugins.runtimes.inference.llama_cpp import LlamaCppPlugin
    except ImportError:
        return _unfit()

    class Runtime(LlamaCppPlugin):  # type: ignore[misc]
        """``ramalama --runtime srhpm --nocontainer serve MODEL``."""

        @property
        def name(self) -> str:
            return NAME

        @property
        def config_key(self) -> str:
            return "llama_cpp"  # what its user has set for llama.cpp holds here, too

        def _cmd_run(self, args: Any) -> Any:
            return _with_ours(super()._cmd_run(args), args)

        def _cmd_serve(self, args: Any) -> Any:
            return _with_ours(super()._cmd_serve(args), args)

    return Runtime()


def _with_ours(command: Any, args: Any) -> Any:
    if not command or command[0] not in ("llama-server", "--server"):
        return command
    if getattr(args, "container", False):
        print(
            "srhpm: what runs in a container is RamaLama's own server: use --nocontainer",
            file=sys.stderr,
        )
        return command
    for name in ("llama-server", "llama-server.exe"):
        program = Path(__file__).with_name(name)
        if program.is_file():
            return [str(program), *command[1:]]
    return command


def _unfit() -> Any:
    """A runtime for a RamaLama whose llama.cpp runtime has moved: it says so when it is chosen."""
    from ramalama.plugins.interface import RuntimePlugin

    class Unfit(RuntimePlugin):  # type: ignore[misc]
        @property
        def name(self) -> str:
            return NAME

        def register_subcommands(self, subparsers: Any) -> None:
            raise ValueError("srhpm: this RamaLama is not known to it: update srhpm-plugin")

    return Unfit()

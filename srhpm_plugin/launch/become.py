"""Becoming the server instead of watching it."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from ..backend import Command
from ..errors import UserError
from . import childmode, logfile, ports
from .prepare import check_command, child_env
from .supervisor import Supervisor


def exec_server(
    command: Command, *, host: str = "127.0.0.1", port: int = 8080, api_key: str | None = None
) -> NoReturn:
    """Becomes the server: for a caller that has nothing left to do.

    On POSIX the process is replaced, so signals and the exit code are the server's own. Windows
    has no such call: there the server runs as a supervised child and its exit code becomes ours.

    Raises:
        UserError: program, model or port are not to be had.
    """
    ports.check_exposure(host, api_key)
    program = check_command(command)
    ports.require_free(host, port)
    argv = [*command.argv, "--host", host, "--port", str(port)]
    env = child_env(command, api_key)
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        try:
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            raise UserError(
                f"cannot run {argv[0]}", error.strerror or str(error), "check the program"
            ) from error
    supervisor = Supervisor(
        argv,
        {**env, **childmode.ENV},
        logfile.LogFile(logfile.default_path(program)),
        lambda line: print(line, file=sys.stderr),
    )
    supervisor.launch()
    try:
        code = supervisor.wait(None)
    finally:
        supervisor.stop(5.0)
    sys.exit(code)

"""What a host's program says its version is."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

_SECONDS = 5.0


def said_version(
    program: str | Path | None, pattern: str, argument: str = "--version"
) -> str | None:
    """The first group of ``pattern`` in what ``program`` prints; ``None`` where it does not tell.

    Root runs only root's own: no program that others can change.
    """
    try:
        info = Path(program or "").stat()
    except (OSError, ValueError):
        return None
    if program is None or (hasattr(os, "geteuid") and os.geteuid() == 0 and info.st_uid != 0):
        return None
    found = re.search(pattern, _output(str(program), argument, info.st_mtime_ns), re.MULTILINE)
    return found[1] if found else None


@cache
def _output(program: str, argument: str, changed: int) -> str:
    # A variable that a llama-server takes for a wrong option would end it before it answers.
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "SRHPM_"))}
    try:
        done = subprocess.run(
            [program, argument],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            env=env,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return (done.stdout[:4096] + b"\n" + done.stderr[-65536:]).decode("utf-8", "replace")

"""From what the system says to what a person can do about it."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError

_SHARING = (32, 33)  # Windows: a program is running from the file, or has it open


def from_os(what: str, error: OSError, command: Sequence[str], title: str) -> UserError:
    """An error of the disk while ``command`` (``install --host …``) ran for a host."""
    place = error.filename2 or error.filename
    why = (error.strerror or str(error)).lower()
    if place:
        why = f"{place}: {why}"
    again = f"srhpm-plugin {shown(command)}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        do = f"free some space there, then type: {again}"
    elif getattr(error, "winerror", None) in _SHARING or error.errno == errno.ETXTBSY:
        do = f"quit {title}, then type: {again}"
    elif error.errno == errno.EROFS:
        do = "nothing can be installed on a read-only disk: install into a copy, with --path"
    elif error.errno in (errno.EACCES, errno.EPERM):
        do = as_administrator(command)
    else:
        do = f"mend that, then type: {again}"
    return UserError(what, why, do)


def as_administrator(command: Sequence[str]) -> str:
    """What to type to run ``command`` with the rights of an administrator, and our state."""
    return _windows(command) if sys.platform == "win32" else _sudo(command)


def _windows(command: Sequence[str]) -> str:
    line = subprocess.list2cmdline([*program(), *command])
    return f"in a terminal opened with 'Run as administrator', type: {line}"


def _sudo(command: Sequence[str]) -> str:
    if sys.platform != "win32" and os.geteuid() == 0:
        return "not even root may: look for a read-only mount or chattr +i"
    keep = [f"{k}={v}" for k in ("SRHPM_HOME", "SRHPM_SERVER") if (v := os.environ.get(k))]
    if not os.environ.get("SRHPM_HOME"):
        folders = [k for k in os.environ if k.startswith("XDG_") and k.endswith("_HOME")]
        keep += [f"{k}={os.environ[k]}" for k in ("HOME", *sorted(folders)) if k in os.environ]
    return f"type: {shlex.join(['sudo', 'env', *keep, *program(), *command])}"


def program() -> list[str]:
    """This program by its full path: another account has another PATH."""
    script = Path(sys.executable).with_name(
        "srhpm-plugin.exe" if sys.platform == "win32" else "srhpm-plugin"
    )
    return [str(script)] if script.is_file() else [sys.executable, "-m", "srhpm_plugin"]


def shown(command: Sequence[str]) -> str:
    """Arguments as one types them."""
    return subprocess.list2cmdline(command) if sys.platform == "win32" else shlex.join(command)

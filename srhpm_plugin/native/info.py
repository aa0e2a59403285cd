"""What the server in use is: ``native info``."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..home import require_usable
from ..machine.isa import host_isa
from ..machine.kernels import chosen_kernels, usable_kernels
from .locate import (
    build_info,
    find_program,
    hosts_with_builds,
    installed_builds,
    local_build,
)

# The hook that puts our weight buffer before the others.
_HOOK = "kernels-buffer"
_FEATURE = re.compile(r"([A-Z][A-Z0-9_]+) = (\d+)")


def describe() -> dict[str, object]:
    """The ``native info --json`` object.

    ``isa`` and ``backends`` come from the server itself, so they are what really runs.
    ``kernels`` is worked out here, from the flags that the system tells of the processor, as the
    server does it: our kernels that can run, best first. ``kernels_default`` are those that do when
    nothing is said (``None``: upstream's).

    Raises:
        UserError: nothing is built or installed, or could be.
    """
    server = find_program("llama-server")
    if server is None:
        require_usable()  # or the advice below would lead nowhere
        raise UserError(
            "there is no server",
            "it is neither built nor installed",
            "run srhpm-plugin native build",
        )
    # Beside a server that the user named there may be nothing to read; then only it can speak.
    info = build_info(server.parent.parent)
    features, backends = _ask(server)
    usable, default = _kernels(info)
    return {
        "llama_cpp_tag": info.get("llama_cpp_tag"),
        "source_sha256": info.get("source_sha256"),
        "hooks": info.get("hooks", []),
        "isa": features,
        "kernels": usable,
        "kernels_default": default,
        "backends": backends,
        "server_path": str(server),
        "portable": info.get("portable"),
        "compiler": info.get("compiler"),
        "architecture": platform.machine(),
        "builds": _builds(),
    }


def _builds() -> list[dict[str, object]]:
    """All builds made on this machine, and what each is for."""
    hosts, current = hosts_with_builds(), local_build()
    builds: list[dict[str, object]] = []
    for folder in installed_builds():
        info = build_info(folder)
        builds.append(
            {
                "name": folder.name,
                "llama_cpp_tag": info.get("llama_cpp_tag"),
                "portable": info.get("portable"),
                "abi": info.get("abi"),
                "current": folder == current,
                "hosts": [host for host, name in hosts.items() if name == folder.name],
            }
        )
    return builds


def _kernels(info: Mapping[str, Any]) -> tuple[list[str], str | None]:
    hooks = info.get("hooks", [])
    if hooks and not any(h["name"] == _HOOK and h["applied"] for h in hooks):
        return [], None  # a build from before there were kernels
    machine, isa = platform.machine(), host_isa()
    return list(usable_kernels(machine, isa)), chosen_kernels(machine, isa)


def _ask(server: Path) -> tuple[list[str], list[str]]:
    """Instruction sets and devices that the server reports."""
    try:
        done = subprocess.run(
            [str(server), "--list-devices", "--offline"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(
            f"cannot run {server}", str(error), "run srhpm-plugin native build --force"
        ) from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise UserError(
            f"cannot run {server}",
            f"exit code {done.returncode} ({last})",
            "run srhpm-plugin native build --force",
        )
    devices = [
        line.split(":")[0].strip()
        for line in done.stdout.splitlines()
        if line.startswith("  ") and ":" in line
    ]
    return _isa(server), ["CPU", *devices]


def _isa(server: Path) -> list[str]:
    """Instruction sets the CPU backend was compiled for and found usable."""
    # The server prints them (`system_info: ... | CPU : AVX2 = 1 | ...`) before it looks for the
    # model, so a model that cannot exist makes it say so and leave.
    argv = [str(server), "--offline", "--no-webui", "--verbosity", "4", "-m", os.devnull + ".none"]
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return []
    line = next((x for x in (done.stderr + done.stdout).splitlines() if "system_info:" in x), "")
    return sorted({name.lower() for name, on in _FEATURE.findall(line) if on == "1"})

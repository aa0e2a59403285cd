"""What the server in use is: ``native info``."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from ..errors import UserError
from .locate import build_info, find_build, find_program


def describe() -> dict[str, object]:
    """The ``native info --json`` object.

    ``isa`` and ``backends`` come from the server itself, so they are what really runs.

    Raises:
        UserError: nothing is built or installed.
    """
    server = find_program("llama-server")
    if server is None:
        raise UserError(
            "there is no server", "it is neither built nor installed", "run srhpm-plugin native build"
        )
    folder = server.parent.parent
    info = build_info(folder) if folder == find_build() else {}
    features, backends = _ask(server)
    return {
        "llama_cpp_tag": info.get("llama_cpp_tag"),
        "source_sha256": info.get("source_sha256"),
        "hooks": info.get("hooks", []),
        "isa": features,
        "backends": backends,
        "server_path": str(server),
        "portable": info.get("portable"),
        "compiler": info.get("compiler"),
        "architecture": platform.machine(),
    }


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
    # Only a start with a model prints the processor features (`system_info:`); asking for a model
    # that is none makes it print them and stop before it touches anything.
    return []

"""Ollama before 0.30, which runs models in its own process: SR-HPM stands in front of it.

The service moves to another port, in a systemd drop-in, and a service of ours takes the old one:
``srhpm-plugin serve --front``. Undone in reverse: ours ends, both files go, Ollama comes back.
Without systemd there is no file that tells Ollama its port (``OLLAMA_HOST`` is a variable of
whoever starts it), so that is left to the user.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Installation, Mode, Steps, Tools
from srhpm_plugin.install.operations import MakeFolder, Operation, Run, WriteFile
from srhpm_plugin.launch import ports

from .service import UNIT, Service

SERVE_UNIT = "srhpm-serve.service"
# After override.conf, which `systemctl edit` writes: of two assignments the later counts.
DROPIN = Path(f"{UNIT}.d", "zz-srhpm.conf")
FACT = "front"
_NEXT = 20
BY_HAND = (
    "start it as OLLAMA_HOST=127.0.0.1:11435 ollama serve, then type: "
    "srhpm-plugin serve --front http://127.0.0.1:11435"
)


def moves(service: Service | None) -> bool:
    """Whether it can be moved: systemd starts it."""
    return service is not None and shutil.which("systemctl") is not None


def registered(units: Path) -> bool:
    """Whether both files are in place."""
    return (units / DROPIN).is_file() and (units / SERVE_UNIT).is_file()


def steps(found: Installation, tools: Tools, mode: Mode, units: Path) -> Steps:
    """What puts us in front.

    Args:
        found: with the fact ``front`` and the address in ``api``.
        tools: see there.
        mode: ``all`` only.
        units: systemd's folder of the administrator's units.

    Raises:
        UserError: it is asked by other machines, or for twins.
    """
    what = "cannot stand in front of Ollama"
    if mode == "select":
        why = "before 0.30 it cannot make models that run elsewhere"
        raise UserError(what, why, "leave out --mode select, or upgrade Ollama to 0.30 or later")
    base = found.facts.get("api")
    if base is None:
        why = "OLLAMA_HOST of its service opens it to other machines, and it knows no keys"
        do = "type: srhpm-plugin serve --host 0.0.0.0 --api-key KEY --front http://127.0.0.1:PORT"
        raise UserError(what, why, do)
    address = urlsplit(base)
    old = address.port or 80
    new = _free_port(old)
    systemctl = shutil.which("systemctl") or "systemctl"
    front = f"http://127.0.0.1:{new}"
    dropin = (
        f'# srhpm: Ollama behind SR-HPM\n[Service]\nEnvironment="OLLAMA_HOST=127.0.0.1:{new}"\n'
    )
    return Steps(
        (
            # Undone in reverse order: these two last, when the files are gone.
            _ask(systemctl, ("daemon-reload",), ("restart", UNIT)),
            _ask(systemctl, ("daemon-reload",), ("daemon-reload",)),
            MakeFolder((units / DROPIN).parent),
            WriteFile(units / DROPIN, dropin.encode(), mode=0o644),
            WriteFile(
                units / SERVE_UNIT,
                "\n".join(
                    _unit(found, tools, address.hostname or "127.0.0.1", old, front)
                ).encode(),
                mode=0o644,
            ),
            _ask(systemctl, ("daemon-reload",)),
            _ask(systemctl, ("restart", UNIT)),
            _ask(systemctl, ("enable", "--now", SERVE_UNIT), ("disable", "--now", SERVE_UNIT)),
        ),
        pick=("use your models under their names, as before",),
        notes=(
            f"Ollama itself is at {front} now; {base} is SR-HPM's, which hands on all else",
            f"what runs on SR-HPM is shown at {base}/srhpm",
        ),
    )


def _ask(systemctl: str, words: tuple[str, ...], undo: tuple[str, ...] | None = None) -> Operation:
    return Run(
        (systemctl, *words),
        what=f"systemctl {' '.join(words)}",
        undo_argv=(systemctl, *undo) if undo else None,
        timeout=90.0,
        required=True,
    )


def _free_port(taken: int) -> int:
    for port in range(taken + 1, min(taken + _NEXT, 65536)):
        try:
            ports.bind("127.0.0.1", port).close()
        except OSError:
            continue
        return port
    return ports.free_port()


def _unit(found: Installation, tools: Tools, host: str, port: int, front: str) -> Iterator[str]:
    command = [str(tools.python), "-I", "-m", "srhpm_plugin", "serve"]
    command += ["--host", host, "--port", str(port), "--front", front]
    suffix = tools.dropin.suffix if tools.dropin.suffix.lower() == ".exe" else ""
    variables = {
        "OLLAMA_MODELS": found.facts["models"],
        "SRHPM_SERVER": str(tools.server_folder / f"llama-server{suffix}"),
    }
    if tools.home is not None:
        variables["SRHPM_HOME"] = str(tools.home)
    yield "# Written by srhpm-plugin install --host ollama; uninstall takes it away."
    yield "[Unit]"
    yield "Description=SR-HPM in front of Ollama"
    yield f"After=network-online.target {UNIT}"
    yield ""
    yield "[Service]"
    yield "ExecStart=" + " ".join(map(_quoted, command))
    if found.user is not None:
        yield f"User={found.user}"
    for name, value in variables.items():
        yield f"Environment={_quoted(f'{name}={value}', command=False)}"
    yield "Restart=always"
    yield "RestartSec=3"
    yield ""
    yield "[Install]"
    yield "WantedBy=default.target"
    yield ""


def _quoted(word: str, command: bool = True) -> str:
    """As systemd reads it (systemd.syntax, systemd.service): quotes, backslashes, specifiers, and
    in commands variables."""
    word = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    if command:
        word = word.replace("$", "$$")
    return f'"{word}"'

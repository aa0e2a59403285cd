"""The systemd service under which Ollama runs on Linux: its account and its settings.

Ollama's ``install.sh`` writes ``/etc/systemd/system/ollama.service`` with ``User=ollama``; people
and distributions add ``Environment=`` lines in ``ollama.service.d`` (``docs/faq.mdx`` there).
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from srhpm_plugin import systemd

UNIT = "ollama.service"
FOLDERS = systemd.FOLDERS
_SYSTEMD = str(sys.platform) == "linux"


@dataclass(frozen=True)
class Service:
    """What the unit and its drop-ins say.

    Attributes:
        unit: the file.
        user: the account; ``None`` for root.
        environment: its variables.
        no_home: it sees no home folders (``ProtectHome=``).
    """

    unit: Path
    user: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    no_home: bool = False

    def home(self) -> Path | None:
        """The account's home folder; ``None`` where there is no such account."""
        if sys.platform != "win32":
            import pwd

            with suppress(KeyError):
                return Path(pwd.getpwnam(self.user or "root").pw_dir)
        return None


def service_of(program: Path | None) -> Service | None:
    """The service that runs this ``ollama``; ``None`` if there is none or it runs another one."""
    if not _SYSTEMD or program is None:
        return None
    unit = next((f / UNIT for f in FOLDERS if (f / UNIT).is_file()), None)
    if unit is None:
        return None
    settings: dict[str, str] = {}
    environment: dict[str, str] = {}
    for file in (unit, *_dropins()):
        for key, value in systemd.settings_in(file):
            if key != "Environment":
                settings[key] = value
            elif not value:
                environment.clear()
            else:
                environment.update(systemd.assignments(value))
    if not _runs(settings.get("ExecStart", ""), program):
        return None
    user = settings.get("User") or None
    return Service(
        unit=unit,
        user=None if user in ("root", "0") else user,
        environment=environment,
        no_home=settings.get("ProtectHome", "no").lower() not in ("no", "false", "0", "off", ""),
    )


def _dropins() -> Iterator[Path]:
    """By name, whatever folder they lie in; one of a stronger folder hides those of its name."""
    found: dict[str, Path] = {}
    for folder in FOLDERS:
        try:
            files = sorted((folder / f"{UNIT}.d").glob("*.conf"))
        except OSError:
            continue
        for file in files:
            found.setdefault(file.name, file)
    for name in sorted(found):
        yield found[name]


def _runs(command: str, program: Path) -> bool:
    try:
        words = shlex.split(command.lstrip("-@:+!|"))
        return bool(words) and Path(words[0]).resolve() == program.resolve()
    except (OSError, ValueError, RuntimeError):
        return False

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

from srhpm_plugin.untrusted import read_bytes

UNIT = "ollama.service"
_SYSTEMD = str(sys.platform) == "linux"

# systemd's order of precedence
FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
_MOST_BYTES = 1 << 18


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
        for key, value in _settings(file):
            if key != "Environment":
                settings[key] = value
            elif not value:
                environment.clear()
            else:
                environment.update(_assignments(value))
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


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    try:
        text = read_bytes(file, _MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def _assignments(value: str) -> dict[str, str]:
    try:
        words = shlex.split(value)
    except ValueError:  # an open quote
        return {}
    return {k: v for k, equals, v in (word.partition("=") for word in words) if equals}


def _runs(command: str, program: Path) -> bool:
    try:
        words = shlex.split(command.lstrip("-@:+!|"))
        return bool(words) and Path(words[0]).resolve() == program.resolve()
    except (OSError, ValueError, RuntimeError):
        return False

"""Reading systemd's unit files: as much as says how a server is started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from .untrusted import read_bytes

# systemd's order of precedence
FOLDERS = (
    Path("/etc/systemd/system"),
    Path("/run/systemd/system"),
    Path("/usr/local/lib/systemd/system"),
    Path("/usr/lib/systemd/system"),
    Path("/lib/systemd/system"),
)
_MOST_BYTES = 1 << 18


def settings_in(file: Path) -> Iterator[tuple[str, str]]:
    """The ``key=value`` lines of a unit or one of its drop-ins, sections aside; none if it cannot
    be read."""
    try:
        text = read_bytes(file, _MOST_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return
    for line in text.replace("\\\n", " ").splitlines():
        key, equals, value = line.strip().partition("=")
        if equals and not key.startswith(("#", ";")):
            yield key.strip(), value.strip()


def assignments(value: str) -> dict[str, str]:
    """The variables that a line ``Environment=`` sets."""
    try:
        words = shlex.split(value)
    except ValueError:  # an open quote
        return {}
    return {k: v for k, equals, v in (word.partition("=") for word in words) if equals}

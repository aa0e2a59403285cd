"""The note beside a drop-in: what it stands in for and where our package is.

One ``key=value`` per line, UTF-8, read by the program (``native/dropin``) and by
:mod:`srhpm_plugin.dropin`. Only the standard library: it is on the way of every start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SUFFIX = ".srhpm"
_FACT = "fact."


@dataclass(frozen=True)
class Note:
    """See the module.

    Attributes:
        host: name of the host plugin.
        original: the host's own server; a relative path counts from the drop-in's folder. ``None``:
            the host has none.
        python: the interpreter that has this package.
        home: ``SRHPM_HOME`` for the drop-in; ``None``: the user's own folders.
        mode: ``all`` or ``select``.
        router: a start without a model is a router's; our server takes it, so that each of its
            models comes to the drop-in again.
        facts: whatever the host plugin wants to be told again.
    """

    host: str
    original: Path | None
    python: Path
    home: Path | None
    mode: Literal["all", "select"] = "all"
    router: bool = False
    facts: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def path_for(dropin: Path) -> Path:
        """Where the note of a drop-in lies."""
        return dropin.with_name(dropin.name + SUFFIX)

    def to_bytes(self) -> bytes:
        """The file's content.

        Raises:
            ValueError: a value holds a line break or NUL, which no path or fact of ours does.
        """
        pairs = {
            "version": "1",
            "host": self.host,
            "original": str(self.original or ""),
            "python": str(self.python),
            "home": str(self.home or ""),
            "mode": self.mode,
            **({"router": "yes"} if self.router else {}),
            **{_FACT + key: value for key, value in self.facts.items()},
        }
        for key, value in pairs.items():
            if any(c in key + value for c in "\r\n\0") or "=" in key:
                raise ValueError(f"{key} cannot be written on one line")
        return "".join(f"{key}={value}\n" for key, value in pairs.items()).encode()

    @classmethod
    def parse(cls, content: bytes) -> Note:
        """The note in a file's content.

        Raises:
            ValueError: it is not one of ours.
        """
        pairs = {}
        for line in content.decode().splitlines():
            key, equals, value = line.partition("=")
            if not equals:
                raise ValueError(f"no '=' in {line!r}")
            pairs[key] = value
        if pairs.get("version") != "1" or not pairs.get("host") or not pairs.get("python"):
            raise ValueError("not a note of a drop-in")
        mode = pairs.get("mode", "all")
        if mode not in ("all", "select"):
            raise ValueError(f"no mode {mode!r}")
        return cls(
            host=pairs["host"],
            original=Path(pairs["original"]) if pairs.get("original") else None,
            python=Path(pairs["python"]),
            home=Path(pairs["home"]) if pairs.get("home") else None,
            mode="select" if mode == "select" else "all",
            router=pairs.get("router") == "yes",
            facts={k[len(_FACT) :]: v for k, v in pairs.items() if k.startswith(_FACT)},
        )

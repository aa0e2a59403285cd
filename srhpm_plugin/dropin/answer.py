"""What is told to the drop-in program: which program it becomes, with which arguments.

The host's own arguments go by number, so that what may be secret in them is never written down
(format: ``native/dropin/answer.h``). Only the standard library: it is on the way of every start.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

LITERAL, INDEX, VALUE = "A", "I", "V"
_KINDS = "AIVEU"


@dataclass(frozen=True)
class Answer:
    """See the module.

    Attributes:
        program: absolute.
        args: pairs of :data:`LITERAL` and the text, :data:`INDEX` and the number of an argument of
            the host's, or :data:`VALUE` and the number of one of which what follows ``=`` is meant.
        env: variables to set; ``None`` unsets.
    """

    program: Path
    args: tuple[tuple[str, str], ...]
    env: dict[str, str | None] = field(default_factory=dict)

    @classmethod
    def untouched(cls, program: Path, n_args: int) -> Answer:
        """``program`` with all of the host's arguments."""
        return cls(program, tuple((INDEX, str(i)) for i in range(n_args)))

    def records(self) -> list[tuple[str, str]]:
        """As plain data, the program first; :meth:`from_records` takes it back."""
        env = [("U", k) if v is None else ("E", f"{k}={v}") for k, v in self.env.items()]
        return [("P", str(self.program)), *self.args, *env]

    @classmethod
    def from_records(cls, records: Iterable[Iterable[object]]) -> Answer:
        """Raises :class:`ValueError` for what :meth:`records` has not written."""
        program: Path | None = None
        args: list[tuple[str, str]] = []
        env: dict[str, str | None] = {}
        for record in records:
            kind, value = record
            if not isinstance(kind, str) or not isinstance(value, str):
                raise ValueError("a record is no text")
            if kind == "P":
                program = Path(value)
            elif kind in ("E", "U"):
                name, _, text = value.partition("=")
                env[name] = text if kind == "E" else None
            elif kind in _KINDS:
                args.append((kind, value))
            else:
                raise ValueError(f"no kind {kind!r}")
        if program is None or not program.is_absolute():
            raise ValueError("no program")
        return cls(program, tuple(args), env)

    def to_bytes(self) -> bytes:
        """For the pipe to the drop-in.

        Raises:
            ValueError: a text holds NUL, which no argument can.
        """
        words = ["SRHPM1", *(w for record in self.records() for w in record), "END"]
        if any("\0" in word for word in words):
            raise ValueError("a NUL in the answer")
        return b"".join(_encoded(word) + b"\0" for word in words)


def _encoded(text: str) -> bytes:
    # Arguments are bytes on POSIX; those that are no text came in as surrogates and go out again.
    if sys.platform == "win32":
        encoding, errors = "utf-8", "surrogatepass"
    else:
        encoding, errors = sys.getfilesystemencoding(), "surrogateescape"
    return text.encode(encoding, errors)

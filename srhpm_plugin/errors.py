"""The error that reaches the user: what went wrong, why, and what to do about it."""

from __future__ import annotations


class UserError(Exception):
    """An expected failure, printed as ``error: WHAT: WHY; DO THIS`` with exit code 1.

    Args:
        what: what failed, e.g. ``"cannot read model.gguf"``.
        why: the cause, one clause, no trailing full stop.
        do: the next thing to do, ideally a command to type; ``None`` only where nothing helps.
    """

    exit_code = 1

    def __init__(self, what: str, why: str, do: str | None = None) -> None:
        self.what = what
        self.why = why
        self.do = do
        super().__init__(self.line())

    def line(self) -> str:
        """The message on one line, without the leading ``error:``."""
        text = f"{self.what}: {self.why}"
        if self.do:
            text += f"; {self.do}"
        return printable(text)


def printable(text: str) -> str:
    """``text`` on one line. Names and paths come from outside: control characters would break
    lines or drive the terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)

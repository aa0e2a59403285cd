"""Printing for people: what comes from files is printed as it is, never as markup or terminal
commands, and nothing is lost on narrow outputs."""

from __future__ import annotations

import io
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough that nothing wraps when the output goes to a file or another program.
_PIPE_WIDTH = 4096


def plain(text: object) -> Text:
    """``text`` literally, with control characters replaced."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text)))


def console() -> Console:
    """Standard output: no markup is read in what is printed, nothing wraps into a pipe, and what
    the output's character set lacks is escaped instead of fatal."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    terminal = Console().is_terminal
    return Console(
        highlight=False, markup=False, emoji=False, width=None if terminal else _PIPE_WIDTH
    )


def emit(out: Console, table: Table) -> None:
    """Prints a table, without the blanks at line ends that rich pads with."""
    with out.capture() as captured:
        out.print(table)
    for line in captured.get().splitlines():
        out.file.write(line.rstrip() + "\n")


def can_print(text: str, out: Console) -> bool:
    """The output's character set has all of ``text``."""
    try:
        text.encode(out.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True

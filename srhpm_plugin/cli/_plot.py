"""Charts that are written with ``--plot``."""

from __future__ import annotations

from pathlib import Path

from ..errors import UserError


def require_writable(plot: Path) -> None:
    """Minutes of measuring must not end in a chart that cannot be written.

    Raises:
        UserError: it could not be.
    """
    existed = plot.exists()
    try:
        with plot.open("a", encoding="utf-8"):
            pass
    except OSError as error:
        raise UserError(
            f"cannot write {plot}", error.strerror or str(error), "name another file with --plot"
        ) from None
    if not existed:
        plot.unlink(missing_ok=True)


def write(plot: Path, text: str) -> None:
    """Writes the chart.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        plot.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write {plot}", error.strerror or str(error), "name another file"
        ) from error

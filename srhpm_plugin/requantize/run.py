"""Writing the file: llama-quantize with a type for each tensor."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..demo.quantize import quantize
from ..errors import UserError
from .mix import Mix

_TABLE = "token_embd.weight"
# What tensors become that no line names: there are none, but the program wants a type.
_BASE = "Q8_0"


def write(
    program: Path,
    source: Path,
    target: Path,
    mix: Mix,
    *,
    threads: int,
    imatrix: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> None:
    """Quantizes ``source`` into ``target``, which must not exist, and appears only when complete.

    Args:
        program: llama-quantize.
        mix: the types; its tensors are the source's.
        threads: at work.
        imatrix: an importance matrix.
        on_progress: called with tensors done and tensors in all.

    Raises:
        UserError: it failed, or something came to lie at ``target`` meanwhile.
    """
    half = target.with_name(f"{target.name}.new-{os.getpid()}")
    options = ["--allow-requantize", "--pure"]
    table = next((t.type for t in mix.after if t.name == _TABLE), None)
    if table is not None:
        options += ["--token-embedding-type", table.lower()]
    if imatrix is not None:
        options += ["--imatrix", str(imatrix)]
    with tempfile.TemporaryDirectory() as folder:
        types = Path(folder) / "types.txt"
        types.write_text(type_lines(mix), encoding="utf-8")
        options += ["--tensor-type-file", str(types)]
        try:
            quantize(
                program,
                source,
                half,
                _BASE,
                threads=threads,
                options=options,
                on_progress=on_progress,
                otherwise=f"look at {source} with: srhpm-plugin plan {source}",
            )
            _place(half, target)
        finally:
            half.unlink(missing_ok=True)


def type_lines(mix: Mix) -> str:
    """The file of types: every matrix by its whole name, so that none is left to rules of the
    program's own."""
    lines = [
        f"^{re.escape(t.name)}$={t.type.lower()}"
        for t in mix.after
        if len(t.shape) > 1 and t.name != _TABLE
    ]
    return "\n".join(lines) + "\n"


def _place(half: Path, target: Path) -> None:
    """Gives the file its name without ever replacing another one."""
    try:
        os.link(half, target)
        return
    except FileExistsError:
        raise exists(target) from None
    except OSError:
        pass  # a file system without hard links
    if target.exists():
        raise exists(target)
    half.rename(target)


def exists(target: Path) -> UserError:
    """The error for a name that is taken."""
    return UserError(
        f"cannot write {target}", "it exists, and nothing is overwritten", "give another OUT"
    )

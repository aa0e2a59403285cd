"""Running llama-quantize: progress, one clear error, nothing half done."""

from __future__ import annotations

import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import UserError
from .files import whole

# Types that need no importance matrix.
TYPES = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "IQ4_NL",
    "IQ4_XS",
    "Q3_K_S",
    "Q3_K_M",
    "Q3_K_L",
    "Q4_K_S",
    "Q4_K_M",
    "Q5_K_S",
    "Q5_K_M",
    "Q6_K",
)

_TENSOR = re.compile(r"^\[\s*(\d+)/\s*(\d+)\]")


def quantize(
    program: Path,
    src: Path,
    dst: Path,
    quant: str,
    *,
    threads: int,
    options: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
    otherwise: str = "try another --quant",
) -> None:
    """Quantizes ``src`` into ``dst``, which appears only when it is complete.

    Args:
        program: llama-quantize.
        quant: one of :data:`TYPES`.
        threads: at work.
        options: of llama-quantize, e.g. ``--pure``.
        on_progress: called with tensors done and tensors in all.
        otherwise: what to do when it fails.

    Raises:
        UserError: it cannot be run or failed.
    """
    with whole(dst) as part:
        argv = [str(program), *options, str(src), str(part), quant, str(threads)]
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise UserError(
                f"cannot run {program}",
                error.strerror or str(error),
                "type: srhpm-plugin native build",
            ) from error
        last: deque[str] = deque(maxlen=1)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip():
                    last.append(line.strip())
                found = _TENSOR.match(line)
                if found and on_progress:
                    on_progress(int(found[1]), int(found[2]))
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if code or not part.is_file():
            why = last[-1] if last else f"it ended with code {code} and no message"
            raise UserError(f"llama-quantize failed on {src.name}", why, otherwise)

"""What the drop-in adds to a start: ``python -m srhpm_plugin.bench.start MODEL [N]``.

A stand-in for the server that ends at once is started directly and through the drop-in, N times
each in turn; printed are medians and spread in milliseconds. POSIX only, the stand-in is a script.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ..dropin.note import Note
from ..native.locate import find_program, find_server


def measure(model: Path, n: int) -> dict[str, list[float]]:
    """Milliseconds per start, by way of starting."""
    server, dropin = find_server(), find_program("srhpm-llama-server")
    if server is None or dropin is None:
        raise SystemExit("build first: srhpm-plugin native build")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stand_in = folder / "ours" / "llama-server"
        original = folder / "own" / "llama-server"
        for path in (stand_in, original):
            path.parent.mkdir()
            path.write_text(
                f'#!/bin/sh\ncase "$1" in --help|--list-devices) exec "{server}" "$1";; esac\n'
            )
            path.chmod(0o755)
        place = folder / "llama-server"
        shutil.copy2(dropin, place)
        note = Note("nobody", original, Path(sys.executable), folder / "home")
        Note.path_for(place).write_bytes(note.to_bytes())
        env = {**os.environ, "SRHPM_SERVER": str(stand_in)}
        args = ["--model", str(model), "--port", "1", "--host", "127.0.0.1", "-c", "4096"]
        ways: dict[str, Sequence[str]] = {
            "the stand-in alone": [str(stand_in), *args],
            "drop-in, a question": [str(place), "--version"],
            "drop-in, a plan that is kept": [str(place), *args],
            "drop-in, a hand-over that is kept": [str(place), *args, "--embedding"],
        }
        times: dict[str, list[float]] = {way: [] for way in ways}
        times["drop-in, decided anew"] = []
        for i in range(n + 1):
            for way, argv in ways.items():
                took = _milliseconds(argv, env)
                if i:  # the first decides
                    times[way].append(took)
            anew = [*ways["drop-in, a plan that is kept"], "--seed", str(i)]
            times["drop-in, decided anew"].append(_milliseconds(anew, env))
    return times


def _milliseconds(argv: Sequence[str], env: dict[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, env=env, capture_output=True, check=True)
    return 1000 * (time.perf_counter() - start)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    for way, found in measure(Path(sys.argv[1]), int((sys.argv[2:] or ["20"])[0])).items():
        low, high = min(found), max(found)
        print(f"{way:34} {statistics.median(found):6.1f} ms  ({low:.1f} to {high:.1f})")

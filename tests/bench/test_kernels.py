"""What ``bench-kernels`` says is read right, and nothing else is taken for a measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.bench.kernels import Wanted, instruction_set, measure
from srhpm_plugin.errors import UserError

Script = Callable[..., Path]
WANTED = Wanted(ms=(1, 4), rows=512, cols=256, threads=2, rounds=2)


def events() -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [
        {"event": "start", "isa": "avx2", "threads": 2, "rounds": 2, "rows": 512, "cols": 256,
         "m": [1, 4], "types": ["Q4_K"], "reads": 2},
        {"event": "type", "type": "Q4_K", "copies": 3, "packed_bytes": 3000, "file_bytes": 2000,
         "stock_buffer": "CPU_REPACK"},
        {"event": "columns", "type": "Q4_K", "m": 1, "ours": True, "stock": True},
        {"event": "columns", "type": "Q4_K", "m": 4, "ours": True, "stock": False},
    ]  # fmt: skip
    for turn in range(2):
        for ahead in (0, 64):
            ms = 1.0 + turn + ahead
            out.append({"event": "sample", "engine": "read", "ahead": ahead, "ms": ms})
        for m in (1, 4):
            out.append({"event": "sample", "engine": "ours", "m": m, "ms": m * 2.0 + turn})
            out.append({"event": "sample", "engine": "stock", "m": m, "ms": m * 3.0 + turn})
        for event in out[-6:]:
            event.update(type="Q4_K", round=turn)
    return out


def says(lines: list[dict[str, Any]]) -> str:
    return f"print({chr(10).join(map(json.dumps, lines))!r})\n"


def test_series(script: Script) -> None:
    steps: list[tuple[int, int, str]] = []
    one, four = measure(script(says(events())), WANTED, lambda *step: steps.append(step))
    assert (one.type, one.isa, one.rows, one.cols, one.model) == ("Q4_K", "avx2", 512, 256, None)
    assert (one.ms, one.stock_ms) == ((2.0, 3.0), (3.0, 4.0))
    assert (four.m, four.ms) == (4, (8.0, 9.0))
    assert (four.bit_identical, four.stock_bit_identical) == (True, False)
    assert (four.nbytes, four.stock) == (3000, "CPU_REPACK")
    assert four.read_ms == (1.0, 2.0), "of the better way to read"
    assert steps[-1] == (12, 12, "Q4_K: round 2 of 2")
    assert any("preparing" in text for _, _, text in steps)


def test_command_line_and_environment(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SRHPM_EXACT", "SRHPM_KERNELS", "LLAMA_ARG_THREADS"):
        monkeypatch.setenv(name, "7")
    monkeypatch.setenv("SRHPM_ISA", "avx2")
    note = "open(sys.argv[0] + '.note', 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))\n"
    program = script(note + says(events()))
    measure(program, Wanted((1, 4), 512, 256, 2, 2, types=("q4_k", "Q8_0"), mib=8))
    argv, env = json.loads(Path(f"{program}.note").read_text())
    assert " ".join(argv) == (
        "--m 1,4 --rows 512 --cols 256 --threads 2 --rounds 2 --types q4_k,Q8_0 --mib 8"
    )
    assert env["SRHPM_KERNELS"] == "speed"
    assert env["SRHPM_ISA"] == "avx2"
    assert not {"SRHPM_EXACT", "LLAMA_ARG_THREADS"} & set(env)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('usage')\n", "what it says is no result: usage"),
        ("print('[1]')\n", "what it says is no result: [1]"),
        ("print(json.dumps({'event': 'surprise'}))\n", "what it says is no result"),
        ("", "what it says is no result: it ended early"),
        (says(events()[:-1]), "what it says is no result: it ended early"),
        (says(events()) + "sys.exit(3)\n", "exit code 3: it said nothing"),
        ("sys.exit('Illegal instruction')\n", "exit code 1: Illegal instruction"),
        ("sys.exit('noise\\nerror: it makes no sense')\n", "kernels: it makes no sense; see"),
    ],
)
def test_no_measurement(script: Script, text: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        measure(script(text), WANTED)
    assert why in caught.value.line()


def test_no_program(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot run"):
        measure(tmp_path / "none", WANTED)


def test_a_stopped_measurement_leaves_nothing_running(script: Script) -> None:
    program = script(
        "open(sys.argv[0] + '.pid', 'w').write(str(os.getpid()))\n"
        + says(events())
        + "sys.stdout.flush()\nimport time\ntime.sleep(600)\n"
    )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure(program, WANTED, stop)
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path(f"{program}.pid").read_text()), 0)


def test_instruction_set(script: Script) -> None:
    assert instruction_set(script(says(events()[:1]))) == "avx2"
    with pytest.raises(UserError, match="no result"):
        instruction_set(script("print('{}')\n"))

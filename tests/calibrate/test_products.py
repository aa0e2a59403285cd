"""What ``bench-kernels`` says becomes nanoseconds per byte."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.calibrate.data import WIDTHS
from srhpm_plugin.calibrate.products import FLOATS, TYPES, products, reads
from srhpm_plugin.errors import UserError
from srhpm_plugin.packing import PACKED

Built = Callable[..., Path]


def quiet(_done: int, _all: int, _text: str) -> None:
    pass


def program(log: Path) -> Path:
    return log.parent / "bin" / "bench-kernels"


def test_every_type_that_has_kernels() -> None:
    assert set(TYPES) == set(PACKED)


def test_reads(built: Built) -> None:
    found = {(read.threads, read.pages): read.gb_s for read in reads(program(built()), 2)}
    assert found == {(1, "small"): 10, (1, "huge"): 20, (2, "small"): 20, (2, "huge"): 40}


def test_per_byte_as_each_side_holds_it(built: Built) -> None:
    log = built()
    steps: list[str] = []
    found = products(program(log), 2, 100.0, lambda *step: steps.append(step[2]), lambda: 0.0)
    assert len(steps) == 2 * (len(TYPES) + len(FLOATS))
    assert not found.left_out
    for name in (*TYPES, *FLOATS):
        # ours: 10 ms for 200 MB; stock: 5 ms for 100 MB
        assert found.found["ours"][name] == pytest.approx(
            {m: (0.05 if name in TYPES else 0.025) * (1 + (m - 1) / 8) for m in WIDTHS}
        )
        assert found.found["stock"][name] == pytest.approx({m: 0.05 * m for m in WIDTHS})
    runs = [json.loads(line) for line in log.read_text().splitlines()]
    floats = [kernels for _, argv, kernels in runs if "--plain" in argv and "F16" in argv]
    assert floats == ["speed", "off"] * 2


def test_no_time(built: Built) -> None:
    times = iter([0.0, 5.0, *[20.0] * 99])
    found = products(program(built()), 2, 10.0, quiet, lambda: next(times))
    assert list(found.found["ours"]) == ["F16", "BF16"]
    assert len(found.left_out) == len(TYPES) + 1
    assert found.left_out[0] == "F32 weights: no time was left"


def test_the_better_of_two_moments(
    built: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = program(built())
    text = path.read_text()
    twice = "os.path.exists(said['--types'] + '.once')"
    slow = "open(said['--types'] + '.once', 'w').close()"
    slowed = f"ours, stock = (3 * ours, stock) if not {twice} else (ours, 7 * stock)"
    line = "ours, stock = 10.0 * (1 + (m - 1) / 8), 5.0 * m"
    assert line in text
    text = text.replace(line, f"{line}; {slowed}")
    text = text.replace('elif name == "llama-bench":', f'    {slow}\nelif name == "llama-bench":')
    path.write_text(text)
    found = products(path, 2, 100.0, quiet, lambda: 0.0)
    assert found.found["ours"]["Q4_K"][1] == pytest.approx(0.05)
    assert found.found["stock"]["Q4_K"][1] == pytest.approx(0.05)


def test_a_program_that_fails(built: Built) -> None:
    with pytest.raises(UserError, match="this type is broken"):
        products(program(built(broken="Q8_0")), 2, 100.0, quiet, lambda: 0.0)


def test_another_program(tmp_path: Path, built: Built) -> None:
    path = program(built())
    path.write_text("#!/bin/sh\necho usage\n")
    with pytest.raises(UserError, match="no result: usage"):
        reads(path, 2)

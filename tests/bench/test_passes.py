"""Whole models through ``llama-bench``: order, figures, and programs that are something else."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from srhpm_plugin.bench.passes import Bench, measure, quantization
from srhpm_plugin.errors import UserError
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.planner.headers import read_header

Script = Callable[..., Path]

# Answers as llama-bench does, and notes how it was called.
BENCH = """
with open(sys.argv[0] + ".note", "a") as note:
    note.write(json.dumps([os.environ["SRHPM_KERNELS"], sys.argv[1:]]) + "\\n")
ms = sys.argv[sys.argv.index("-p") + 1].split(",")
off = os.environ["SRHPM_KERNELS"] == "off"
print(json.dumps([
    {"n_prompt": int(m), "n_gen": 0, "samples_ns": [int(m) * k * (2000000 if off else 1000000)
                                                    for k in (1, 2, 3)]}
    for m in ms
]))
"""


@pytest.fixture(scope="module")
def model(smollm2: Path) -> ModelInfo:
    return read_header(smollm2)


def test_rounds_in_turn(script: Script, model: ModelInfo) -> None:
    program = script(BENCH)
    ours, stock = Bench(program, "speed"), Bench(program, "off")
    steps: list[tuple[int, int, str]] = []
    one, four = measure(
        [model], ours, stock, (1, 4), 2, 3, "avx2", lambda *step: steps.append(step)
    )
    assert (one.type, one.model, one.isa) == (quantization(model), model.path.name, "avx2")
    assert one.ms == (1.0, 2.0, 3.0) * 3
    assert four.stock_ms == (8.0, 16.0, 24.0) * 3
    assert (one.rows, one.cols, one.bit_identical, one.read_ms) == (None, None, None, ())
    assert one.nbytes is not None
    assert model.nbytes / 2 < one.nbytes < model.nbytes * 2, "as packed"
    calls = [json.loads(line) for line in Path(f"{program}.note").read_text().splitlines()]
    assert [kernels for kernels, _ in calls] == ["speed", "off", "off", "speed", "speed", "off"]
    assert calls[0][1] == [
        "-m", str(model.path), "-n", "0", "-p", "1,4", "-r", "3", "-t", "2", "-ngl", "0", "-o",
        "json",
    ]  # fmt: skip
    assert [done for done, _, _ in steps] == list(range(6))
    assert steps[0][1:] == (6, f"{model.path.name}: round 1 of 3, srhpm")


def test_an_expert_model_has_no_bytes(script: Script, model: ModelInfo) -> None:
    bench = Bench(script(BENCH), "speed")
    (one,) = measure([replace(model, n_expert=8)], bench, bench, (1,), 1, 1)
    assert one.nbytes is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("print('| model | t/s |')\n", "what it says is no result"),
        ("print('[]')\n", "what it says is no result"),
        ("sys.exit('error: failed to load model')\n", "exit code 1: error: failed to load model"),
    ],
)
def test_no_result(script: Script, model: ModelInfo, text: str, why: str) -> None:
    bench = Bench(script(text), "off")
    with pytest.raises(UserError) as caught:
        measure([model], bench, bench, (1,), 1, 1)
    assert why in caught.value.line()


def test_quantization(model: ModelInfo) -> None:
    named = replace(model, metadata={"general.file_type": 15}, quant_mix={"Q6_K": 1})
    assert quantization(named) == "Q4_K_M"
    for metadata in ({}, {"general.file_type": 9999}, {"general.file_type": "x"}):
        assert quantization(replace(named, metadata=metadata)) == "Q6_K"

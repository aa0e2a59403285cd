"""How many slots, and how long a context, a start gets whose host does not say."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin import slots
from srhpm_plugin.dropin.arguments import parse
from srhpm_plugin.dropin.flags import FlagTable
from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.probe import probe as real_probe
from srhpm_plugin.machine.types import Machine

Decide = Callable[..., Any]


@pytest.mark.parametrize(
    ("said", "opened"),
    [
        ((), True),
        (("-np", "-1"), True),
        (("--parallel", "auto"), True),
        (("-np", "1"), False),
        (("-np", "1", "-np", "-1"), False),
        (("--kv-unified",), True),
        (("-no-kvu",), False),
        (("--no-kv-unified",), False),
    ],
)
def test_whether_it_is_left_open(said: tuple[str, ...], opened: bool, table: FlagTable) -> None:
    assert slots.left_open(parse(said, {}, table)) == opened


def test_a_variable_says_it(table: FlagTable) -> None:
    assert not slots.left_open(parse((), {"LLAMA_ARG_N_PARALLEL": "2"}, table))
    assert not slots.left_open(parse((), {"LLAMA_ARG_NO_KV_UNIFIED": "1"}, table))


def test_four_over_one_context(decided: Decide, smollm2: Path) -> None:
    made = decided("-m", smollm2, "-c", "4096")
    assert made.value("--parallel") == "4"
    assert "--kv-unified" in made.argv
    # the host's context is shared, not multiplied; exact are the passes of all four
    assert (made.value("-c"), made.value("--ctx-size")) == ("4096", None)
    assert made.env["SRHPM_EXACT"] == "32"
    one = decided("-m", smollm2, "-c", "4096", "-np", "1")
    assert "--kv-unified" not in one.argv
    assert one.env["SRHPM_EXACT"] == "8"
    # the cache is the same, what a slot has of its own comes on top
    assert one.record["needs"] <= made.record["needs"] < one.record["needs"] + (64 << 20)


def test_the_context_of_the_plan_is_shared_likewise(decided: Decide, smollm2: Path) -> None:
    wide, one = decided("-m", smollm2), decided("-m", smollm2, "-np", "1")
    assert wide.value("--ctx-size") == one.value("--ctx-size")


@pytest.mark.parametrize("said", [("-np", "2"), ("--no-kv-unified",)])
def test_what_the_host_says_of_it_wins(
    said: tuple[str, ...], decided: Decide, smollm2: Path
) -> None:
    made = decided("-m", smollm2, "-c", "4096", *said)
    assert "--kv-unified" not in made.argv
    assert made.value("--parallel") in (None, "1")


def test_one_where_four_do_not_fit(
    decided: Decide, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise UserError("it does not fit", "too little memory")

    monkeypatch.setattr(slots, "make_plan", refuse)
    made = decided("-m", smollm2, "-c", "4096")
    assert made.kind == "srhpm"
    assert made.value("--parallel") == "1"
    assert "--kv-unified" not in made.argv


@pytest.fixture
def trained_for(smollm2: Path, tmp_path: Path) -> Callable[[int], Path]:
    """``trained_for(tokens)``: the small model, said to have been trained for so many."""

    def write(tokens: int) -> Path:
        content = smollm2.read_bytes()
        key = b"llama.context_length" + struct.pack("<I", 4)
        assert content.count(key + struct.pack("<I", 8192)) == 1
        path = tmp_path / f"trained-{tokens}.gguf"
        path.write_bytes(
            content.replace(key + struct.pack("<I", 8192), key + struct.pack("<I", tokens))
        )
        return path

    return write


def test_all_of_the_models_context(decided: Decide, trained_for: Callable[[int], Path]) -> None:
    """As the host's own server gives it, where there is room."""
    made = decided("-m", trained_for(32768))
    assert made.value("--ctx-size") == "32768"
    assert made.value("--parallel") == "4"
    assert decided("-m", trained_for(32768), "-c", "4096").value("--ctx-size") is None
    env = {"LLAMA_ARG_CTX_SIZE": "4096"}
    assert decided("-m", trained_for(32768), env=env).value("--ctx-size") is None


def test_less_where_it_would_take_too_much(
    decided: Decide, trained_for: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than half of what is free; never less than the usual plan has."""
    free = 3 << 30

    def probe(server: Path) -> Machine:
        machine = real_probe(server)
        return replace(machine, memory=replace(machine.memory, free=free))

    monkeypatch.setattr("srhpm_plugin.dropin.decide.probe", probe)
    made = decided("-m", trained_for(1 << 20))
    ctx = int(made.value("--ctx-size"))
    assert 8192 <= ctx < 1 << 20
    assert made.record["needs"] <= free // 2 + (256 << 20)
    free = 700 << 20
    assert int(decided("-m", trained_for(1 << 20)).value("--ctx-size")) <= 8192

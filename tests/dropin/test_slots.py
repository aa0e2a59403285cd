"""How many slots a start gets whose host does not say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin import slots
from srhpm_plugin.dropin.arguments import parse
from srhpm_plugin.dropin.flags import FlagTable
from srhpm_plugin.errors import UserError

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

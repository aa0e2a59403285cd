"""Free memory of GPUs at a start whose decision was kept."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin import __main__ as main
from srhpm_plugin.dropin.answer import Answer
from srhpm_plugin.dropin.gpumemory import Room, suffices

MIB, GIB = 1 << 20, 1 << 30
CARD = "NVIDIA GeForce RTX 4060 Ti"
NOWHERE = Answer(Path(os.sep) / "no" / "server", ())


class Driver:
    """NVIDIA's library for these cards: name, total, free."""

    def __init__(self, *cards: tuple[str, int, int], code: int = 0) -> None:
        self.cards, self.code, self.open = cards, code, 0

    def __call__(self) -> Driver:
        return self

    def nvmlInit_v2(self) -> int:
        self.open += not self.code
        return self.code

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.cards)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, card: Any) -> int:
        card._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetName(self, card: ctypes.c_void_p, name: Any, length: ctypes.c_uint) -> int:
        assert length.value == len(name)
        name.value = self.cards[(card.value or 0) - 1][0].encode()
        return 0

    def nvmlDeviceGetMemoryInfo(self, card: ctypes.c_void_p, memory: Any) -> int:
        _, memory._obj.total, memory._obj.free = self.cards[(card.value or 0) - 1]
        return 0


def no_driver() -> Any:
    raise OSError("no such library")


def room(**changes: Any) -> Room:
    return Room(**{**asdict(Room("CUDA0", CARD, 16 * GIB, 6 * GIB, 0)), **changes})


def test_the_driver_answers() -> None:
    for free, enough in ((7, True), (6, True), (5, False)):
        driver = Driver((CARD, 16 * GIB + 9 * MIB, free * GIB))
        assert suffices([room()], NOWHERE, {}, driver) == enough
        assert driver.open == 0, "it was left open"
    more = room(most=8 * GIB)
    assert suffices([more], NOWHERE, {}, Driver((CARD, 16 * GIB, 8 * GIB)))
    assert not suffices([more], NOWHERE, {}, Driver((CARD, 16 * GIB, 9 * GIB)))


def test_cards_of_one_name_count_as_the_fullest() -> None:
    """The driver may count them in another order than the server."""
    cards = ((CARD, 16 * GIB, 15 * GIB), (CARD, 16 * GIB, 1 * GIB))
    assert not suffices([room()], NOWHERE, {}, Driver(*cards))
    assert suffices([room(needs=GIB)], NOWHERE, {}, Driver(*cards))


def test_without_a_plan_on_a_gpu_nobody_is_asked() -> None:
    assert suffices([], NOWHERE, {}, no_driver)


@pytest.mark.parametrize(
    "load",
    [
        no_driver,
        Driver(),
        Driver(code=9),
        Driver(("NVIDIA Another", 16 * GIB, 16 * GIB)),
        Driver((CARD, 8 * GIB, 8 * GIB)),
        object,
    ],
)
def test_the_server_is_asked_else(load: Callable[[], Any], script: Any, tmp_path: Path) -> None:
    def listing(text: str) -> Answer:
        return Answer(script(tmp_path / "server", f"#!/bin/sh\nprintf '{text}'\n"), ())

    told = f"  CUDA0: {CARD} (16384 MiB, %d MiB free)\\n"
    assert suffices([room()], listing(told % 7000), {}, load)
    assert not suffices([room()], listing(told % 6000), {}, load)
    assert not suffices([room()], listing("no devices"), {}, load)
    assert not suffices([room()], NOWHERE, {}, load)


@pytest.fixture
def plans(
    place: Any, smollm2: Path, server_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[int]]:
    """``plans(memory, *args)``: a start beside a stand-in for a GPU of so many MiB; how often a
    decision was made up to now."""
    made: list[int] = []
    from srhpm_plugin.dropin import decide

    really = decide.decide

    def counted(call: Any) -> Any:
        made.append(1)
        return really(call)

    monkeypatch.setattr(decide, "decide", counted)
    monkeypatch.setenv("SRHPM_SERVER", str(server_dir / "test-server"))

    def start(memory: int, *args: str) -> list[int]:
        monkeypatch.setenv("STANDIN_MEMORY", str(memory))
        env = {"SRHPM_SERVER": str(server_dir / "test-server"), "SRHPM_DRAFT": "ngram"}
        main.answer_for(place.call("-m", smollm2, "-c", "2048", *args, env=env))
        return made

    return start


@pytest.mark.skipif(os.name != "posix", reason="the stand-in for a host's server is a script")
def test_a_plan_on_a_gpu_is_kept(plans: Callable[..., list[int]], draws: Sequence[str]) -> None:
    """As long as there is room for it, and where weights were left in RAM, no more than then."""
    assert len(plans(4096, *draws)) == 1
    assert len(plans(4096, *draws)) == 1
    assert len(plans(8192, *draws)) == 1, "all of it lay there"
    assert len(plans(128, *draws)) == 2, "too little is left"
    assert len(plans(128, *draws)) == 2
    assert len(plans(4096, *draws)) == 3, "it need not stay in RAM any more"


@pytest.fixture
def draws(smollm2: Path, tmp_path: Path) -> Sequence[str]:
    """A drafter, without which nothing would speak for our server."""
    path = tmp_path / "drafter.gguf"
    path.symlink_to(smollm2)
    return ("-md", str(path))

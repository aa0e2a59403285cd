"""Figures are kept, and known to be old when what they were taken of changes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.calibrate import Calibration, current, load, path, save, stale
from srhpm_plugin.machine.types import Machine


@pytest.fixture
def kept(calibration: Any, measured_machine: Machine) -> Calibration:
    made: Calibration = calibration(measured_machine)
    save(made)
    return made


def test_nothing_before(measured_machine: Machine) -> None:
    assert load() is None
    assert current(measured_machine) is None


def test_kept(kept: Calibration, measured_machine: Machine) -> None:
    assert load() == kept
    assert current(measured_machine) == kept
    # as JSON has it, too
    assert Calibration.from_json(json.loads(json.dumps(kept.to_json()))) == kept


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:100],
        lambda text: "[]",
        lambda text: text.replace('"version": 1', '"version": 0'),
        lambda text: text.replace('"query": ', '"query": -'),
        lambda text: text.replace('"query": ', '"query": Infinity, "was": '),
        lambda text: text.replace('"layer": {"1": ', '"layer": {"3": '),
        lambda text: text.replace('"stock": ', '"stick": '),
    ],
)
def test_damage_is_nothing(kept: Calibration, damage: Any) -> None:
    text = path().read_text()
    path().write_text(damage(text))
    assert path().read_text() != text
    assert load() is None


def test_a_new_file_is_read(kept: Calibration, measured_machine: Machine) -> None:
    assert load() == kept
    save(replace(kept, seconds=7.0))
    assert load() == replace(kept, seconds=7.0)


def other(machine: Machine, part: str, **change: Any) -> Machine:
    return replace(machine, **{part: replace(getattr(machine, part), **change)})


@pytest.mark.parametrize(
    ("part", "change", "words"),
    [
        ("cpu", {"name": "another"}, "the processor changed since"),
        ("cpu", {"usable": 2}, "the number of usable cores changed since"),
        ("cpu", {"isa": ("sse2",)}, "the processor's instruction sets changed since"),
        ("memory", {"total": 1 << 30}, "the amount of memory changed since"),
        ("memory", {"huge_pages": "never"}, "the system's setting for huge pages changed since"),
    ],
)
def test_another_machine(
    kept: Calibration, measured_machine: Machine, part: str, change: dict[str, Any], words: str
) -> None:
    now = other(measured_machine, part, **change)
    assert stale(kept, now) == words
    assert current(now) is None


def test_free_memory_changes_nothing(kept: Calibration, measured_machine: Machine) -> None:
    assert stale(kept, other(measured_machine, "memory", free=1, swap_used=7)) is None


def test_another_build(
    kept: Calibration,
    measured_machine: Machine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = tmp_path / "llama-server"
    server.write_bytes(b"new")
    monkeypatch.setenv("SRHPM_SERVER", str(server))
    monkeypatch.setenv("SRHPM_ISA", "avx2")
    assert stale(kept, measured_machine) == "the server, SRHPM_ISA changed since"

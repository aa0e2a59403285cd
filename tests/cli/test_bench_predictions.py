"""``bench predictions``: what is predicted beside what is measured."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.calibrate import Calibration
from srhpm_plugin.cli.bench_predictions import table, texts
from srhpm_plugin.gguf import read_model
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.plan import HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.cost.check import Check, check, error
from srhpm_plugin.planner.cost.pairs import Counts

Shell = Callable[..., tuple[int, str, str]]
COUNTS = Counts(0, 7, 0.0, 100, (50,) * 3, (40, 30, 20))


@pytest.fixture
def plan(
    smollm2: Path, measured_machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], LaunchPlan]:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return lambda draft: make_plan(
        HostRequest(smollm2, draft=draft),
        model=read_model(smollm2), machine=measured_machine, known=(), command=False,
    )  # fmt: skip


def checked(plan: LaunchPlan, calibration: Calibration, machine: Machine, **more: object) -> Check:
    given = {"drafter": "", "context": 256.0, "counts": None} | more
    return check(
        plan, machine, calibration, measured=(90.0, 100.0, 120.0), stock=(50.0, 60.0), **given
    )  # type: ignore[arg-type]


def test_without_figures(shell: Shell, smollm2: Path, fake_server: tuple[str, str]) -> None:
    code, out, err = shell("bench", "predictions", smollm2)
    assert (code, out) == (1, "")
    assert "srhpm-plugin" in err


def test_plain(
    plan: Callable[[str], LaunchPlan],
    calibration: Callable[..., Calibration],
    measured_machine: Machine,
) -> None:
    found = checked(plan("none"), calibration(measured_machine), measured_machine)
    assert found.before == found.after
    assert found.before_basis == ""
    far = checked(plan("none"), calibration(measured_machine), measured_machine, context=4096.0)
    assert far.before < found.before
    data = json.loads(json.dumps(found.to_json()))
    assert data["error"] == pytest.approx(found.before / 100 - 1)
    assert data["stock_error"] == pytest.approx(found.stock_predicted / 55 - 1)


def test_with_what_was_accepted_in_the_run(
    plan: Callable[[str], LaunchPlan],
    calibration: Callable[..., Calibration],
    measured_machine: Machine,
) -> None:
    figures = calibration(measured_machine)
    found = checked(plan("ngram"), figures, measured_machine, drafter="ngram", counts=COUNTS)
    assert found.before_basis == "assumed"
    assert found.after > found.before, "half of the rounds had a draft, more than is assumed"


def test_error() -> None:
    assert error(11.0, [9.0, 10.0, 30.0]) == pytest.approx(0.1)
    assert error(None, [1.0]) is None
    assert error(1.0, []) is None


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    from srhpm_plugin.planner.printing import console, emit

    one = Check("m.gguf", "small", 300.4, (9.0, 10.0), (5.0,), 11.0, "assumed", 9.0, 5.5)
    emit(console(), table([one]))
    line = capsys.readouterr().out.splitlines()[1]
    for cell in (
        "m.gguf",
        "small",
        "300",
        "9.5 (9.0 - 10.0)",
        "11.0 (assumed)",
        "+16%",
        "-5%",
        "+10%",
    ):
        assert cell in line


def test_prompts_are_about_as_long_as_asked_and_differ() -> None:
    short, long = texts(256, 64, 3), texts(4096, 64, 1)
    assert len({one.text for one in short}) == 3
    assert len(long[0].text) > 10 * len(short[0].text)

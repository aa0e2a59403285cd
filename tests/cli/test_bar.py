"""Progress and the time left."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from srhpm_plugin.cli import _bar
from srhpm_plugin.cli._bar import Bar, Pace, time_left
from srhpm_plugin.launch.server import Progress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nobody_knows_before_two_pieces() -> None:
    clock = Clock()
    pace = Pace(clock)
    assert pace.left(0, 10) is None
    clock.now += 30
    assert pace.left(1, 10) is None
    clock.now += 50
    assert pace.left(2, 10) == pytest.approx(8 * 40)
    clock.now += 15
    assert pace.left(2, 10) == pytest.approx(8 * 40 - 15), "the third is under way"
    clock.now += 1000
    assert pace.left(2, 10) == 0, "never less than nothing"


def test_loading_is_no_work() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.left(0, 4, fresh=True)
    clock.now += 10
    pace.left(1, 4)
    clock.now += 10
    pace.left(2, 4)
    clock.now += 500
    assert pace.left(2, 4, fresh=True) == pytest.approx(20)
    clock.now += 10
    assert pace.left(3, 4) == pytest.approx(10)


def test_words() -> None:
    assert time_left(0) == "about 5 s left"
    assert time_left(42) == "about 40 s left"
    assert time_left(200) == "about 3 min left"


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=120, force_terminal=True, color_system=None)
    monkeypatch.setattr(_bar, "Console", lambda **_: console)
    with Bar() as bar:
        bar.loading("[/]", Progress("model", 0.5, 1.0))
        bar.show("asking", 3, 10, 130.0)
        assert bar._bar is not None
        bar._bar.refresh()
    assert "3/10" in screen.getvalue()
    assert "about 2 min left" in screen.getvalue()

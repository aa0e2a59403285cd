"""A machine that is too busy to be measured is told so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.calibrate.run import calibrate
from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.types import Machine


def test_too_busy(built: Callable[..., Path], measured_machine: Machine) -> None:
    built()
    clock = iter(range(0, 10_000, 12))  # each look at the clock is twelve seconds later
    with pytest.raises(UserError, match="other programs take the processor"):
        calibrate(measured_machine, clock=lambda: float(next(clock)))

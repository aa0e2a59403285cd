"""Measuring a machine once, so that plans can say how fast they will be (``planner/cost``)."""

from __future__ import annotations

from .data import Attention, Calibration, Passes, Read, Serving
from .store import current, load, path, save, stale

__all__ = [
    "Attention",
    "Calibration",
    "Passes",
    "Read",
    "Serving",
    "current",
    "load",
    "path",
    "save",
    "stale",
]

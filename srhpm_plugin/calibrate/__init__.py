"""Measuring a machine once, so that plans can say how fast they will be (``planner/cost``)."""

from __future__ import annotations

from .data import Attention, Calibration, GpuSpeed, Passes, Read, Serving
from .store import current, gpu_speed, gpus_changed, load, path, save, stale

__all__ = [
    "Attention",
    "Calibration",
    "GpuSpeed",
    "Passes",
    "Read",
    "Serving",
    "current",
    "gpu_speed",
    "gpus_changed",
    "load",
    "path",
    "save",
    "stale",
]

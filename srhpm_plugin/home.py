"""Where state lives: platformdirs' folders, or all of it below ``SRHPM_HOME``."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "srhpm-plugin"


def _folder(kind: str, default: str) -> Path:
    home = os.environ.get("SRHPM_HOME")
    return Path(home).expanduser().absolute() / kind if home else Path(default)


def data_dir() -> Path:
    """Built servers, journals, our own models. Not created by this call."""
    return _folder("data", platformdirs.user_data_dir(_APP, appauthor=False))


def cache_dir() -> Path:
    """Whatever can be made again: sources, build trees, calibration. Not created by this call."""
    return _folder("cache", platformdirs.user_cache_dir(_APP, appauthor=False))


def config_dir() -> Path:
    """What the user writes. Not created by this call."""
    return _folder("config", platformdirs.user_config_dir(_APP, appauthor=False))

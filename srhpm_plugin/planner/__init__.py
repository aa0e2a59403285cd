"""From a request, a model and a machine to a launch plan."""

from __future__ import annotations

from .make import make_plan
from .names import find_model
from .sources import known_models

__all__ = ["find_model", "known_models", "make_plan"]

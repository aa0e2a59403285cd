"""What a killed process wrote stays with the system, so waiting for the disk only takes time."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def _no_waiting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "durable" not in request.fixturenames:
        monkeypatch.setattr(os, "fsync", lambda fd: None)


@pytest.fixture
def durable() -> None:
    """Marks a test in which files are really written through."""

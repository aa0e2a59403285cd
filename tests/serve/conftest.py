"""Our own application over a fake engine, both listening on real sockets.

Tests change ``fake_engine`` (what is answered), ``catalog`` (what models there are) and
``scheduler`` (busy, failing) and talk to ``client``, or give ``url`` to somebody else's. The fakes
themselves are in ``serve_engine.py`` and ``serve_parts.py``, which tests may import.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from serve_engine import FakeEngine, listening
from serve_parts import FakeCatalog, FakeScheduler, FakeStore

from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.settings import Settings
from srhpm_plugin.serve.stats import Stats


@pytest.fixture
def fake_engine() -> FakeEngine:
    """What llama-server answers; tests change it."""
    return FakeEngine()


@pytest.fixture
def engine_url(fake_engine: FakeEngine) -> Iterator[str]:
    """Where it listens."""
    with listening(fake_engine.app()) as url:
        yield url


@pytest.fixture
def catalog() -> FakeCatalog:
    """One model, ``fake:latest``."""
    return FakeCatalog()


@pytest.fixture
def scheduler(engine_url: str) -> FakeScheduler:
    """Lends the fake engine."""
    return FakeScheduler(engine_url)


@pytest.fixture
def parts(catalog: FakeCatalog, scheduler: FakeScheduler, tmp_path: Path) -> Parts:
    """Everything that routes get."""
    folder = tmp_path / "blobs"
    folder.mkdir()
    return Parts(
        catalog=catalog,
        scheduler=scheduler,
        store=FakeStore(catalog, folder),
        settings=Settings(),
        stats=Stats(),
    )


@pytest.fixture
def url(parts: Parts) -> Iterator[str]:
    """Where our application listens."""
    with listening(create_app(parts)) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    """Talks to our application."""
    with httpx.Client(base_url=url, timeout=20.0, trust_env=False) as client:
        yield client

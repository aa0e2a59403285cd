"""Fixtures of the native tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from srhpm_plugin.native import source


@pytest.fixture(scope="session")
def source_archives(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The source packages of all supported tags: from ``SRHPM_TEST_SOURCES`` (kept there when they
    had to be fetched) or fetched for this run."""
    named = os.environ.get("SRHPM_TEST_SOURCES")
    keep = Path(named) if named else tmp_path_factory.mktemp("sources")
    keep.mkdir(parents=True, exist_ok=True)
    archives: dict[int, Path] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRHPM_HOME", str(tmp_path_factory.mktemp("fetch")))
        for tag in source.SHA256:
            known = keep / source.archive_path(tag).name
            if not known.is_file() or source.sha256(known) != source.SHA256[tag]:
                shutil.move(source.fetch(tag, print), known)
            archives[tag] = known
    return archives

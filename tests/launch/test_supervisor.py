"""Starting a child in the thread that watches it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.launch import supervisor as module
from srhpm_plugin.launch.logfile import LogFile
from srhpm_plugin.launch.process import Child
from srhpm_plugin.launch.supervisor import Supervisor


def test_launch_returns_when_the_child_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*args: Any) -> Child:
        time.sleep(0.2)  # a busy machine
        return Child(*args)

    monkeypatch.setattr(module, "Child", slow)
    log = LogFile(tmp_path / "log")
    supervisor = Supervisor([sys.executable, "-c", "input()"], dict(os.environ), log)
    supervisor.launch()
    try:
        assert supervisor.child.popen.pid > 0
    finally:
        supervisor.child.kill()
        supervisor.join(10)

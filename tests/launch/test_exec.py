"""Becoming the server."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import httpx
import psutil
import pytest

from srhpm_plugin.launch import ports

EXEC = """
import sys
from srhpm_plugin.backend import Command
from srhpm_plugin.errors import UserError
from srhpm_plugin.launch import exec_server
try:
    exec_server(Command(tuple(sys.argv[2:]), {"X_MARK": "1"}), port=int(sys.argv[1]))
except UserError as error:
    sys.exit(error.line())
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows has no exec")
def test_the_process_becomes_the_server(fake_server: tuple[str, str]) -> None:
    port = ports.free_port()
    process = subprocess.Popen([sys.executable, "-c", EXEC, str(port), *fake_server])
    try:
        for _ in range(200):
            try:
                if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                    break
            except httpx.HTTPError:
                time.sleep(0.05)
        assert "fake_server.py" in " ".join(psutil.Process(process.pid).cmdline())
        assert psutil.Process(process.pid).environ()["X_MARK"] == "1"
        again = subprocess.run(
            [sys.executable, "-c", EXEC, str(port), *fake_server],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert again.returncode == 1
        assert f"port {port} is in use" in again.stderr
    finally:
        process.kill()
        process.wait()

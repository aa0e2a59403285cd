"""Runs the tests: builds the native server, fetches the small model, hands both to pytest.

``python tests/run.py [PYTEST ARGUMENTS]`` works where there is no make.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from srhpm_plugin.cli import main as srhpm_plugin
from srhpm_plugin.demo.source import fetch_model
from srhpm_plugin.errors import UserError
from srhpm_plugin.home import cache_dir
from srhpm_plugin.native.locate import find_server


def main() -> int:
    """Prepares, then becomes pytest's exit code."""
    try:
        srhpm_plugin(["native", "build"])
    except SystemExit as done:
        if done.code:
            return 1
    server = find_server()
    assert server is not None
    try:
        model = fetch_model(print)
    except UserError as error:
        print(f"error: {error.line()}", file=sys.stderr)
        return 1
    env = {
        **os.environ,
        "SRHPM_TEST_SERVER_DIR": str(server.parent),
        "SRHPM_TEST_MODEL": str(model),
        "SRHPM_TEST_SOURCES": str(cache_dir() / "sources"),
    }
    root = Path(__file__).parent.parent
    argv = [sys.executable, "-m", "pytest", *sys.argv[1:]]
    return subprocess.run(argv, cwd=root, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

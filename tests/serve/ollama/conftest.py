"""Models with the headers that matter here, and ``srhpm-plugin serve`` with real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ollama_compare
import pytest
from serve_models import write_gguf
from serve_parts import FakeCatalog, served


@pytest.fixture
def add_model(catalog: FakeCatalog, tmp_path: Path) -> Callable[..., Any]:
    """``add_model("name", "jinja", fields={...}, **served)`` puts one into the catalog."""

    def add(name: str, jinja: str = "", fields: Any = None, **more: Any) -> Any:
        path = write_gguf(tmp_path / f"{name}.gguf", jinja, fields)
        model = served(f"{name}:latest", path, **more)
        catalog.models.append(model)
        return model

    return add


@pytest.fixture(scope="session")
def real_url(
    server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """``srhpm-plugin serve`` over the patched server; its models were created through the API:
    ``smol``, ``able`` (of tools), ``thinker`` and ``embed``."""
    folder = tmp_path_factory.mktemp("serve")
    program = server_dir / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
    env = {k: v for k, v in os.environ.items() if not k.startswith("OLLAMA_")}
    env |= {
        "SRHPM_HOME": str(folder / "home"),
        "SRHPM_SERVER": str(program),
        "SRHPM_HOSTED": "off",
        "OLLAMA_HOST": "127.0.0.1:0",
    }
    argv = [sys.executable, "-m", "srhpm_plugin", "serve", "--json", "--ctx", "2048"]
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url: str = json.loads(process.stdout.readline())["url"]
            with ollama_compare.connect(url) as client:
                ollama_compare.create(client, ollama_compare.make_files(smollm2, folder))
            yield url
        finally:
            process.terminate()
            process.wait(30)

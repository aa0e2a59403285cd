"""Models with the headers that matter here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

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

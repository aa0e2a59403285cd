"""Ollama's models where people look for models: listed, planned by name, drafting."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from ollama_store import Shelf

from srhpm_plugin.cli import cli
from srhpm_plugin.errors import UserError
from srhpm_plugin.integrations.ollama import layout
from srhpm_plugin.planner.hosted import hosted, label
from srhpm_plugin.planner.names import find_model
from srhpm_plugin.planner.sources import known_models


@pytest.fixture
def here(
    tmp_path: Path, copy: Callable[..., Path], shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> Shelf:
    """The store of an Ollama that is found on this machine; there are no other models."""
    root = copy(tmp_path / "usr" / "local")
    monkeypatch.setattr(layout, "_programs", lambda: iter([root / "bin" / layout.PROGRAM]))
    monkeypatch.setenv("OLLAMA_MODELS", str(shelf.root))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("SRHPM_MODELS", raising=False)
    monkeypatch.delenv("SRHPM_HOSTED")
    return shelf


def listed(*args: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(cli, ["models", "--json", *args])
    assert result.exit_code == 0, result.output
    models: list[dict[str, Any]] = json.loads(result.stdout)["models"]
    return models


def test_listed_under_their_names(here: Shelf, smollm2: Path) -> None:
    here.add("smol:135m", smollm2)
    here.add("smol:135m-srhpm", smollm2, {"num_batch": 511})
    here.add("cloud:latest", smollm2, config={"remote_host": "https://ollama.com"})
    here.write("bad:latest", b"{")
    for args in ((), ("--host", "ollama")):
        found = {m["called"]: m for m in listed(*args)}
        assert found["smol:135m"]["plan"]["kind"] == "srhpm"
        assert [found[n]["twin"] for n in ("smol:135m", "smol:135m-srhpm")] == [False, True]
        assert "another machine" in found["cloud:latest"]["reason"]
        assert "manifest" in found["bad:latest"]["reason"]
        assert {m["host"] for m in found.values()} == {"ollama"}
    assert listed("--host", "jan") == []
    table = CliRunner().invoke(cli, ["models"]).output
    assert "ollama, twin" in table
    assert "bad:latest: its manifest" in table


def test_planned_by_name(here: Shelf, smollm2: Path) -> None:
    here.add("smol:latest", smollm2)
    here.add("hf.co/someone/Smol/Q4_1", smollm2, {"num_ctx": 1024})
    here.write("bad:latest", b"{")
    blob = here.path(here.blob(smollm2))
    for name in ("smol", "smol:latest", "SMOL", "hf.co/someone/Smol:Q4_1"):
        assert find_model(name) == blob
    with pytest.raises(UserError, match="manifest"):
        find_model("bad")
    with pytest.raises(UserError, match="no model 'smoll'"):
        find_model("smoll")


def test_only_what_a_manifest_names_may_draft(here: Shelf, smollm2: Path) -> None:
    content = smollm2.read_bytes()
    here.add("smol:latest", smollm2)
    left = here.path(here.blob(content + b"what an older version of a model left behind"))
    eyes = b"GGUF of a projector"
    here.add("other:latest", content + b"x", projector=eyes)
    blob = here.path(here.blob(smollm2))
    known = known_models(near=blob)
    assert blob in known
    assert left not in known
    assert here.path(here.blob(eyes)) not in known
    assert len(known) == 2
    hosted()
    assert label(blob) == "smol:latest"

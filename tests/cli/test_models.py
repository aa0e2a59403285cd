"""``models`` as a user sees it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from srhpm_plugin.cli import cli


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place with models."""
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.delenv("SRHPM_SERVER", raising=False)
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def models(*args: str) -> Result:
    result = CliRunner().invoke(cli, ["models", *args])
    assert result.exit_code == 0, result.output
    return result


def test_none(folder: Path) -> None:
    assert "SRHPM_MODELS" in models().output
    assert json.loads(models("--json").output) == {"models": []}


def test_a_table(folder: Path, smollm2: Path) -> None:
    (folder / "smol.gguf").symlink_to(smollm2)
    (folder / "[red]broken.gguf").write_bytes(smollm2.read_bytes()[:5000])
    output = models().output
    assert re.search(r"^smol +llama +92\.1 MiB +srhpm +ngram +not measured$", output, re.MULTILINE)
    assert re.search(r"^\[red\]broken +- +- +broken", output, re.MULTILINE)
    assert re.search(r"\[red\]broken\.gguf: .*truncated", output)
    assert "\x1b" not in output


def test_json(folder: Path, smollm2: Path) -> None:
    (folder / "smol.gguf").symlink_to(smollm2)
    (folder / "broken.gguf").write_bytes(b"GGUF")
    good, bad = json.loads(models("--json").output)["models"]
    assert (good["arch"], good["plan"]["kind"], good["reason"]) == ("llama", "srhpm", None)
    assert good["plan"]["draft"]["type"] == "ngram"
    assert (bad["arch"], bad["plan"]) == (None, None)
    assert "truncated" in bad["reason"]


def test_a_model_that_does_not_fit(
    folder: Path, smollm2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from srhpm_plugin.machine import probe as module
    from srhpm_plugin.machine.types import Machine

    real = module.probe

    def small(server: Path | None = None) -> Machine:
        machine = real(server)
        return replace(machine, memory=replace(machine.memory, free=300 * 1024**2), gpus=())

    monkeypatch.setattr(module, "probe", small)
    (folder / "smol.gguf").symlink_to(smollm2)
    output = models().output
    assert re.search(r"^smol +llama +92\.1 MiB +does not fit", output, re.MULTILINE)
    assert "it needs" in output

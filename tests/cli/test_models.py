"""``models`` as a user sees it."""

from __future__ import annotations

import json
import os
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
    assert json.loads(models("--json").output) == {"models": [], "ignored": 0, "missing": []}


def test_files_that_hold_no_model_are_not_passed_over(folder: Path) -> None:
    (folder / "page.gguf").write_text("<!DOCTYPE html><html>Sign in</html>")
    (folder / "empty.GGUF").touch()
    (folder / "gone.gguf").symlink_to(folder / "blob")
    (folder / "README.md").write_text("about")
    (folder / "config.json").write_text("{}")
    output = models().output
    assert re.search(r"page\.gguf: it is a web page", output)
    assert re.search(r"empty\.GGUF: the file is empty", output)
    assert re.search(r"gone\.gguf: no such file", output, re.IGNORECASE)
    assert "2 other files in the folders you named" in output
    data = json.loads(models("--json").output)
    assert {Path(m["path"]).name for m in data["models"]} == {
        "page.gguf", "empty.GGUF", "gone.gguf"
    }  # fmt: skip
    assert data["ignored"] == 2


def test_a_file_named_itself_is_never_passed_over(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "model.bin").write_bytes(b"PK\x03\x04")
    monkeypatch.setenv("SRHPM_MODELS", str(folder / "model.bin"))
    assert re.search(r"model\.bin: it is a zip archive", models().output)


def test_a_folder_that_is_not_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "gone"
    monkeypatch.setenv("SRHPM_MODELS", os.pathsep.join((str(folder), str(gone))))
    result = models("--json")
    assert result.stderr == f"warning: SRHPM_MODELS names {gone}, which is not there\n"
    assert json.loads(result.stdout)["missing"] == [{"named_by": "SRHPM_MODELS", "path": str(gone)}]


def test_a_table(folder: Path, smollm2: Path) -> None:
    (folder / "smol.gguf").symlink_to(smollm2)
    (folder / "[red]broken.gguf").write_bytes(smollm2.read_bytes()[:5000])
    output = models().output
    row = r"^smol +llama +92\.1 MiB +srhpm +ngram +not measured +-$"
    assert re.search(row, output, re.MULTILINE)
    assert "srhpm-plugin calibrate" in output
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

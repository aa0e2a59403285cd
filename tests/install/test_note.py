"""A note that the drop-in can no longer read is called so, and the command named mends it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from crash import state
from toy_host import ToyHost

from srhpm_plugin.cli import cli
from srhpm_plugin.cli._installs import check_installations
from srhpm_plugin.dropin.note import Note


def typed(line: str) -> str:
    result = CliRunner().invoke(cli, shlex.split(line)[1:])
    assert result.exit_code == 0, result.exception
    return result.output


@pytest.fixture
def note(toy: ToyHost) -> Path:
    return Note.path_for(toy.server)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\0", b"version=1\nhost=to", None])
def test_a_damaged_note(toy: ToyHost, note: Path, content: bytes | None) -> None:
    before = state(toy.root)
    typed("srhpm-plugin install --host toy")
    whole = note.read_bytes()
    note.unlink()
    if content is not None:
        note.write_bytes(content)

    what = "is gone" if content is None else "is damaged"
    (row,) = json.loads(typed("srhpm-plugin status --json"))["installations"]
    assert row["state"] == "damaged note"
    assert row["detail"].startswith(f"{note} {what}: ")
    (check,) = check_installations()
    assert (check.state, check.fix) == ("broken", row["fix"])
    assert f"damaged note: {note} {what}" in check.detail

    typed(row["fix"])
    assert note.read_bytes() == whole
    (row,) = json.loads(typed("srhpm-plugin status --json"))["installations"]
    assert row["state"] == "in place"
    assert "left" not in typed("srhpm-plugin uninstall --host toy")
    assert state(toy.root) == before


def test_a_note_that_was_edited(toy: ToyHost, note: Path) -> None:
    """It can be read, so it counts; uninstalling takes it along."""
    before = state(toy.root)
    typed("srhpm-plugin install --host toy")
    note.write_bytes(note.read_bytes().replace(b"mode=all", b"mode=select"))
    (row,) = json.loads(typed("srhpm-plugin status --json"))["installations"]
    assert (row["state"], row["detail"]) == ("changed by user", f"{note} was changed")
    assert "you changed it since" in typed("srhpm-plugin install --host toy")
    assert b"mode=select" in note.read_bytes()
    typed("srhpm-plugin uninstall --host toy")
    assert state(toy.root) == before

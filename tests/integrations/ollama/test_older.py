"""Ollama before 0.30: moved to another port, with us in front, and back."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Installation, Tools
from srhpm_plugin.install.effects import EffectError
from srhpm_plugin.install.operations import WriteFile
from srhpm_plugin.integrations.ollama import Ollama, older, service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
HOST = Ollama()
UNIT = '[Service]\nExecStart={program} serve\n{user}Environment="OLLAMA_KEEP_ALIVE=9m"\n'


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What systemctl was asked, each with the files of ours there at that moment."""
    log, units = tmp_path / "asked", service.FOLDERS[0]
    folder = tmp_path / "systemd-bin"
    folder.mkdir()
    program = folder / "systemctl"
    program.write_text(
        f'#!/bin/sh\nif [ -e "{tmp_path}/fail-$1" ]; then echo "$1 went wrong"; exit 1; fi\n'
        f'files=""; [ -e "{units}/{older.DROPIN}" ] && files=" +dropin"\n'
        f'[ -e "{units}/{older.SERVE_UNIT}" ] && files="$files +unit"\n'
        f'echo "$*$files" >> "{log}"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return lambda: log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def root(tmp_path: Path, copy: Callable[..., Path]) -> Path:
    root = copy(tmp_path / "usr" / "local", version="0.24.0", server=False)
    etc = service.FOLDERS[0]
    etc.mkdir(parents=True)
    program = root / "bin" / "ollama"
    (etc / "ollama.service").write_text(UNIT.format(program=program, user=""))
    return root


def found_at(root: Path) -> Installation:
    (found,) = HOST.find(root)
    return found


BEHIND = [
    "daemon-reload",
    "daemon-reload",
    "daemon-reload +dropin +unit",
    "restart ollama.service +dropin +unit",
    "enable --now srhpm-serve.service +dropin +unit",
]
BACK = [
    "disable --now srhpm-serve.service +dropin +unit",
    "daemon-reload",
    "restart ollama.service",
]


def test_there_and_back(
    root: Path,
    asked: Callable[[], list[str]],
    install: Callable[..., Any],
    tree: Callable[[Path], Any],
) -> None:
    etc = service.FOLDERS[0]
    before = tree(etc)
    found = found_at(root)
    assert found.installable
    assert "in front" in found.how
    assert not HOST.registered(found)
    installed = install(HOST, found, "all")
    assert HOST.registered(found_at(root))
    assert asked() == BEHIND
    # read again as systemd would: our address wins
    moved = service.service_of(root / "bin" / "ollama")
    assert moved is not None
    port = moved.environment["OLLAMA_HOST"].removeprefix("127.0.0.1:")
    assert moved.environment["OLLAMA_KEEP_ALIVE"] == "9m"
    unit = (etc / older.SERVE_UNIT).read_text()
    assert f'"--front" "http://127.0.0.1:{port}"' in unit
    assert '"--host" "127.0.0.1" "--port" "1"' in unit  # Ollama's own address before
    assert installed.undo() == []
    assert asked() == BEHIND + BACK
    assert tree(etc) == before


def test_an_override_of_the_user_s_loses_against_ours_while_it_stands(
    root: Path, asked: Callable[[], list[str]], install: Callable[..., Any]
) -> None:
    place = service.FOLDERS[0] / "ollama.service.d"
    place.mkdir()
    (place / "override.conf").write_text('[Service]\nEnvironment="OLLAMA_HOST=127.0.0.1:7777"\n')
    installed = install(HOST, found_at(root), "all")
    moved = service.service_of(root / "bin" / "ollama")
    assert moved is not None
    assert moved.environment["OLLAMA_HOST"] != "127.0.0.1:7777"
    assert '"--port" "7777"' in (service.FOLDERS[0] / older.SERVE_UNIT).read_text()
    installed.undo()
    back = service.service_of(root / "bin" / "ollama")
    assert back is not None
    assert back.environment["OLLAMA_HOST"] == "127.0.0.1:7777"


@pytest.mark.parametrize("command", ["restart", "enable"])
def test_a_command_that_fails_stops_the_installation(
    root: Path,
    asked: Callable[[], list[str]],
    install: Callable[..., Any],
    tmp_path: Path,
    command: str,
) -> None:
    """What was done is taken back then, as after any failure (tests/install)."""
    (tmp_path / f"fail-{command}").touch()
    with pytest.raises(EffectError, match=f"{command} went wrong"):
        install(HOST, found_at(root), "all")
    assert not any(line.startswith(command) for line in asked())


def test_without_systemd_the_user_is_told(root: Path, copy: Callable[..., Path]) -> None:
    found = found_at(root)  # no systemctl on PATH
    assert not found.installable
    assert "serve --front http://127.0.0.1:11435" in found.how


def test_one_that_other_machines_ask_is_left_alone(
    root: Path, asked: Callable[[], list[str]], install: Callable[..., Any]
) -> None:
    place = service.FOLDERS[0] / "ollama.service.d"
    place.mkdir()
    (place / "override.conf").write_text("[Service]\nEnvironment=OLLAMA_HOST=192.168.1.5\n")
    with pytest.raises(UserError, match="--api-key"):
        install(HOST, found_at(root), "all")
    assert asked() == []


def test_twins_need_a_newer_one(
    root: Path, asked: Callable[[], list[str]], install: Callable[..., Any]
) -> None:
    with pytest.raises(UserError, match=r"0\.30"):
        install(HOST, found_at(root), "select")


def test_the_unit_quotes_what_systemd_would_read(root: Path, tmp_path: Path) -> None:
    asked_for = Tools(
        dropin=Path("/d"),
        python=Path('/o p/py"%h$X'),
        home=Path("/h"),
        server_folder=Path("/s"),
        state=tmp_path,
    )
    steps = older.steps(found_at(root), asked_for, "all", tmp_path)
    written = [o for o in steps.operations if isinstance(o, WriteFile)]
    unit = next(o.content for o in written if o.path.name == older.SERVE_UNIT)
    assert rb'ExecStart="/o p/py\"%%h$$X" "-I"' in unit
    assert b'Environment="SRHPM_HOME=/h"' in unit

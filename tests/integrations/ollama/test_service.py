"""The systemd unit: whose account Ollama runs under, and with which variables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.host import Tools
from srhpm_plugin.integrations.ollama import Ollama, service

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="systemd is Linux's")
HOST = Ollama()
UNIT = """[Unit]
Description=Ollama Service
After=network-online.target

[Service]
ExecStart={program} serve
User=ollama
Group=ollama
Restart=always
RestartSec=3
Environment="PATH=/usr/local/bin:/usr/bin"

[Install]
WantedBy=default.target
"""


@pytest.fixture
def root(tmp_path: Path, copy: Callable[..., Path]) -> Path:
    """A copy with the unit that install.sh writes."""
    root = copy(tmp_path / "usr" / "local")
    etc = service.FOLDERS[0]
    etc.mkdir(parents=True)
    (etc / "ollama.service").write_text(UNIT.format(program=root / "bin" / "ollama"))
    return root


def override(name: str, text: str, folder: int = 0) -> None:
    place = service.FOLDERS[folder] / "ollama.service.d"
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(text)


def test_the_script_s_unit(root: Path) -> None:
    (found,) = HOST.find(root)
    assert found.user == "ollama"
    assert found.facts["unit"].endswith("ollama.service")


def test_overrides_win_by_name_and_folder(root: Path) -> None:
    override("50-mine.conf", '[Service]\nEnvironment="OLLAMA_MODELS=/data/my models" A=1\n')
    override("60-more.conf", "[Service]\nEnvironment=OLLAMA_HOST=0.0.0.0:11500\n")
    override("60-more.conf", "[Service]\nEnvironment=OLLAMA_MODELS=/hidden\nUser=x\n", folder=1)
    override("10-early.conf", "[Service]\nEnvironment=OLLAMA_MODELS=/early\n", folder=1)
    (found,) = HOST.find(root)
    assert found.facts["models"] == "/data/my models"
    assert found.facts["api"] == "http://127.0.0.1:11500"
    assert found.user == "ollama"


def test_settings_that_are_reset_commented_or_continued(root: Path) -> None:
    override(
        "1.conf",
        "[Service]\nEnvironment=OLLAMA_MODELS=/a\n# Environment=OLLAMA_MODELS=/b\n"
        "; User=evil\nEnvironment=\nEnvironment=B=1 \\\n  OLLAMA_HOST=127.0.0.1:7\nUser=root\n",
    )
    (found,) = HOST.find(root)
    assert found.facts["models"] != "/a"
    assert found.facts["api"] == "http://127.0.0.1:7"
    assert found.user is None


def test_a_unit_of_another_copy_is_not_this_one_s(root: Path) -> None:
    override("1.conf", "[Service]\nExecStart=/opt/other/ollama serve\n")
    (found,) = HOST.find(root)
    assert found.user is None
    assert "unit" not in found.facts


@pytest.mark.parametrize("text", ["", "ExecStart", "[Service]\nExecStart='open\n", "\0" * 100])
def test_a_unit_that_says_nothing(root: Path, text: str) -> None:
    (service.FOLDERS[0] / "ollama.service").write_text(text)
    (found,) = HOST.find(root)
    assert (found.installable, found.user) == (True, None)


def test_a_hidden_home_is_said(root: Path, tools: Tools) -> None:
    from dataclasses import replace

    override("1.conf", "[Service]\nProtectHome=yes\n")
    (found,) = HOST.find(root)
    at_home = replace(tools, python=Path("/home/me/.venv/bin/python"))
    assert any("ProtectHome" in n for n in HOST.steps(found, at_home, "all").notes)
    elsewhere = replace(tools, python=Path("/opt/srhpm/bin/python"))
    assert not any("ProtectHome" in n for n in HOST.steps(found, elsewhere, "all").notes)

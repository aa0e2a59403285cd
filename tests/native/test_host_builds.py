"""Builds side by side: the one in use, and those made for a host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from srhpm_plugin.native import build, locate
from srhpm_plugin.native.locate import INFO_NAME, HostBuild, builds_dir


@pytest.fixture(autouse=True)
def _nobody_served(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("SRHPM_SERVER", raising=False)
    yield
    locate.serve(None)


def make(name: str) -> Path:
    """An installed build of that name."""
    folder = builds_dir() / name
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / f"llama-server{locate.EXE}").touch()
    (folder / INFO_NAME).write_text(json.dumps({"llama_cpp_tag": name.partition("-")[0]}))
    return folder


def test_a_host_has_its_own() -> None:
    mine, theirs = make("b11434-native"), make("b10488-portable")
    build._use(mine, always=True)
    build._use(theirs, always=False)
    locate.set_host_build("ollama", HostBuild(theirs, "version: 1"))
    assert locate.find_build() == mine
    locate.serve("jan")
    assert locate.find_build() == mine
    locate.serve("ollama")
    assert locate.find_build() == theirs
    assert locate.find_server() == theirs / "bin" / f"llama-server{locate.EXE}"
    assert locate.host_build("ollama") == HostBuild(theirs, "version: 1")
    assert locate.hosts_with_builds() == {"ollama": "b10488-portable"}
    assert locate.installed_builds() == [theirs, mine]


def test_the_first_build_is_in_use_whatever_for() -> None:
    theirs = make("b10488-portable")
    build._use(theirs, always=False)
    assert locate.find_build() == theirs


def test_a_build_that_is_gone() -> None:
    mine = make("b11434-native")
    build._use(mine, always=True)
    locate.set_host_build("ollama", HostBuild(builds_dir() / "b10488-portable", "version: 1"))
    locate.serve("ollama")
    assert locate.find_build() == mine
    assert locate.hosts_with_builds() == {}


NOT_BARE = ("", ".", "..", "../b", "/etc", "a\0b")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"build": 3, "says": "x"}', '{"build": "b11434-native"}']
    + [json.dumps({"build": name, "says": "x"}) for name in NOT_BARE],
)
def test_a_pointer_that_we_did_not_write(text: str) -> None:
    mine = make("b11434-native")
    (builds_dir().parent / INFO_NAME).write_text("{}")
    (builds_dir() / "for-ollama").write_text(text)
    build._use(mine, always=True)
    locate.serve("ollama")
    assert locate.host_build("ollama") is None
    assert locate.find_build() == mine


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a\0b", ".x", "x" * 65])
def test_hosts_that_cannot_be(name: str) -> None:
    """A note may hold anything."""
    mine = make("b11434-native")
    build._use(mine, always=True)
    locate.serve(name)
    assert locate.find_build() == mine
    with pytest.raises(ValueError, match="no host can be called"):
        locate.set_host_build(name, HostBuild(mine, ""))


def test_the_user_names_a_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locate.set_host_build("ollama", HostBuild(make("b10488-portable"), "version: 1"))
    named = tmp_path / "llama-server"
    named.touch()
    monkeypatch.setenv("SRHPM_SERVER", str(named))
    locate.serve("ollama")
    assert locate.find_server() == named

"""Of which llama.cpp tag Ollama's own server is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from srhpm_plugin.integrations.ollama import pinned
from srhpm_plugin.integrations.ollama.host import Ollama
from srhpm_plugin.integrations.ollama.layout import KEPT, SERVER


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, str], list[str]]:
    """``web(status, text)``: what GitHub answers; returns the addresses that were asked."""

    def answers(status: int, text: str) -> list[str]:
        asked: list[str] = []

        def get(url: str, timeout: float) -> httpx.Response:
            asked.append(url)
            return httpx.Response(status, text=text)

        monkeypatch.setattr(httpx, "get", get)
        return asked

    return answers


def test_ollamas_sources_tell(web: Callable[[int, str], list[str]]) -> None:
    asked = web(200, "b10488\n")
    assert pinned.tag("0.32.15") == "b10488"
    name = "https://raw.githubusercontent.com/ollama/ollama/v0.32.15/LLAMA_CPP_VERSION"
    assert asked == [name]
    assert pinned.tag("0.33.0-rc2") == "b10488"


@pytest.mark.parametrize(
    ("status", "text"), [(404, "b10488"), (200, "0123456789"), (200, "<html>b10488"), (302, "")]
)
def test_what_is_no_tag(web: Callable[[int, str], list[str]], status: int, text: str) -> None:
    web(status, text)
    assert pinned.tag("0.32.15") is None


@pytest.mark.parametrize(
    "version", ["", "0", "dev", "0.1/../..", "0.32.15?x", "0.32.15\n", "v0.1.2"]
)
def test_versions_of_nobodys(web: Callable[[int, str], list[str]], version: str) -> None:
    asked = web(200, "b10488")
    assert pinned.tag(version) is None
    assert asked == []


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(url: str, timeout: float) -> httpx.Response:
        raise httpx.ConnectError("no route")

    monkeypatch.setattr(httpx, "get", get)
    assert pinned.tag("0.32.15") is None


def test_its_own_server_also_while_ours_stands_in(
    copy: Callable[..., Path], tmp_path: Path
) -> None:
    root = copy(tmp_path / "tree")
    (found,) = Ollama().find(root)
    lib = found.root
    assert Ollama().own_server(found) == lib / SERVER
    (lib / KEPT).touch()
    assert Ollama().own_server(found) == lib / KEPT
    (lib / KEPT).unlink()
    (lib / SERVER).unlink()
    assert Ollama().own_server(found) is None

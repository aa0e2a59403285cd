"""Where ``OLLAMA_HOST`` says that Ollama answers: the cases of its own documentation and source."""

from __future__ import annotations

import pytest

from srhpm_plugin.integrations.ollama.api import address

CASES = {
    "": "http://127.0.0.1:11434",
    "127.0.0.1": "http://127.0.0.1:11434",
    "127.0.0.1:11435": "http://127.0.0.1:11435",
    "localhost:9": "http://localhost:9",
    "0.0.0.0": "http://127.0.0.1:11434",
    "0.0.0.0:8080": "http://127.0.0.1:8080",
    "[::]:8080": "http://[::1]:8080",
    ":8080": "http://127.0.0.1:8080",
    "http://127.0.0.1": "http://127.0.0.1:80",
    "http://127.0.0.1:7/": "http://127.0.0.1:7",
    ' "127.0.0.1:5" ': "http://127.0.0.1:5",
}
ELSEWHERE = (
    "192.0.2.7", "http://example.com", "https://127.0.0.1", "http://[::", "127.0.0.1:99999",
    "127.0.0.1.example.com:80", "user@192.0.2.7",
)  # fmt: skip


@pytest.mark.parametrize("said", CASES, ids=repr)
def test_here(said: str) -> None:
    assert address({"OLLAMA_HOST": said}) == CASES[said]


@pytest.mark.parametrize("said", ELSEWHERE)
def test_elsewhere(said: str) -> None:
    assert address({"OLLAMA_HOST": said}) is None


def test_not_said() -> None:
    assert address({}) == "http://127.0.0.1:11434"

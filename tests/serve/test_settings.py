"""Flags and Ollama's variables."""

from __future__ import annotations

from typing import Any

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.serve.durations import FOR_EVER, seconds
from srhpm_plugin.serve.settings import Settings, from_environment


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("300ms", 0.3),
        ("-1", FOR_EVER),
        ("-1m", FOR_EVER),
        ("0", 0),
        ("0s", 0),
        ("90", 90),
        (90, 90),
        (2.5, 2.5),
        (-1, FOR_EVER),
        (1e300, FOR_EVER),
        ("+10s", 10),
        (" 5m ", 300),
        ("24h", 86400),
    ],
)
def test_durations(said: object, expected: float) -> None:
    assert seconds(said) == pytest.approx(expected)


@pytest.mark.parametrize(
    "said", ["", "5 m", "m", "5x", "1h30", "--1", "1e3", None, True, [], "nan"]
)
def test_no_durations(said: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds(said)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1", "127.0.0.1", 11434),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        (":8080", "127.0.0.1", 8080),
        ("0.0.0.0", "0.0.0.0", 11434),
        ("http://example", "example", 80),
        ("https://example", "example", 443),
        ("https://example:7", "example", 7),
        ("[::1]:80", "::1", 80),
        ("::1", "::1", 11434),
        ('"0.0.0.0:1"', "0.0.0.0", 1),
    ],
)
def test_ollama_host(address: str, host: str, port: int) -> None:
    settings = from_environment({"OLLAMA_HOST": address})
    assert (settings.host, settings.port, settings.port_asked) == (host, port, True)


def test_variables_and_flags() -> None:
    env = {
        "OLLAMA_KEEP_ALIVE": "-1",
        "OLLAMA_NUM_PARALLEL": "3",
        "OLLAMA_MAX_QUEUE": "7",
        "OLLAMA_MAX_LOADED_MODELS": "2",
        "OLLAMA_CONTEXT_LENGTH": "8192",
        "OLLAMA_ORIGINS": "https://a.example, *",
    }
    settings = from_environment(env, parallel=4, host=None, ctx=None)
    assert settings == Settings(
        keep_alive=FOR_EVER,
        parallel=4,
        max_queue=7,
        max_loaded=2,
        ctx=8192,
        origins=("https://a.example", "*"),
    )
    assert from_environment({}) == Settings()
    assert from_environment({"OLLAMA_NUM_PARALLEL": "0", "OLLAMA_KEEP_ALIVE": ""}) == Settings()
    asked = from_environment({"OLLAMA_HOST": "127.0.0.1:5"}, port=6, keep_alive="10m")
    assert (asked.port, asked.port_asked, asked.keep_alive) == (6, True, 600)


@pytest.mark.parametrize(
    ("env", "flags"),
    [
        ({"OLLAMA_NUM_PARALLEL": "many"}, {}),
        ({"OLLAMA_NUM_PARALLEL": "-1"}, {}),
        ({"OLLAMA_CONTEXT_LENGTH": "1e3"}, {}),
        ({"OLLAMA_KEEP_ALIVE": "soon"}, {}),
        ({"OLLAMA_HOST": "127.0.0.1:port"}, {}),
        ({}, {"keep_alive": "soon"}),
    ],
)
def test_nonsense_is_refused(env: dict[str, str], flags: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        from_environment(env, **flags)

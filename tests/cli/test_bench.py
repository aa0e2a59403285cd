"""``bench decode`` as a user sees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

Shell = Callable[..., tuple[int, str, str]]


def engines(fake_backend: Any, journal: Path) -> None:
    fake_backend("stock", ["--journal", journal, "--tok-s", 40], ["--drafted", 4, "--differ-at", 1])
    fake_backend(
        "fake",
        ["--journal", journal, "--tok-s", 60],
        ["--drafted", 4, "--accepted", 3],
    )


def test_three_engines(shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path) -> None:
    engines(fake_backend, tmp_path / "journal")
    plot = tmp_path / "chart.svg"
    args = ("bench", "decode", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 8)
    code, out, _ = shell(*args, "--rounds", 2, "--json", "--plot", plot)
    assert code == 0
    runs = {run["engine"]: run for run in json.loads(out)["runs"]}
    assert list(runs) == ["stock plain", "stock with drafter", "fake"]
    assert runs["stock plain"]["draft"] is None
    assert runs["stock with drafter"]["draft"] == "ngram"
    assert runs["stock with drafter"]["tokens_equal_to_plain"] is False
    assert runs["fake"]["tokens_equal_to_plain"] is True
    assert runs["fake"]["acceptance"] == 0.75
    assert runs["fake"]["ratio_median"] == 1.5
    for run in runs.values():
        assert run["tok_s_min"] <= run["tok_s_median"] <= run["tok_s_max"]
    ElementTree.parse(plot)
    code, out, _ = shell(*args, "--rounds", 1)
    assert code == 0
    assert "75%" in out
    assert "5 of 5" in out


def test_few_tokens_are_noise(
    shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    engines(fake_backend, tmp_path / "journal")
    args = ("bench", "decode", smollm2, "--backend", "fake", "--draft", "none", "--rounds", 1)
    _, out, err = shell(*args, "--tokens", 15, "--json")
    (warning,) = json.loads(out)["warnings"]
    assert "noise below 16" in warning
    assert err == f"warning: {warning}\n"
    _, out, err = shell(*args, "--tokens", 16, "--json")
    assert (json.loads(out)["warnings"], err) == ([], "")


def test_the_time_left_is_told(
    shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    engines(fake_backend, tmp_path / "journal")
    args = ("--backend", "fake", "--draft", "none", "--rounds", 1, "--tokens", 16)
    _, _, err = shell("bench", "decode", smollm2, *args)
    lines = [line for line in err.splitlines() if "round" in line]
    assert len(lines) == 10
    assert not any("left" in line for line in lines[:2])
    assert all(line.endswith("about 5 s left") for line in lines[2:])


def test_without_a_drafter_two_engines(
    shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    engines(fake_backend, tmp_path / "journal")
    code, out, _ = shell(
        "bench", "decode", smollm2, "--backend", "fake", "--draft", "none", "--rounds", 1,
        "--tokens", 4, "--json",
    )  # fmt: skip
    assert code == 0
    assert [run["engine"] for run in json.loads(out)["runs"]] == ["stock plain", "fake"]


def test_wrong_use(shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path) -> None:
    engines(fake_backend, tmp_path / "journal")
    base = ("bench", "decode", smollm2, "--backend", "fake", "--draft", "none", "--tokens", 4)
    code, _, err = shell(*base, "--against", tmp_path / "none")
    assert (code, "cannot measure against" in err) == (1, True)
    code, _, err = shell(*base, "--rounds", 1, "--plot", tmp_path / "no" / "folder.svg")
    assert (code, "cannot write" in err) == (1, True)
    code, _, err = shell(*base, "--rounds", 1, "--plot", tmp_path)
    assert (code, "cannot write" in err) == (1, True), "a folder is no file"
    broken = tmp_path / "prompts.json"
    broken.write_text('["a",')
    code, _, err = shell(*base, "--rounds", 1, "--prompts", broken)
    assert (code, "begins like a JSON array" in err) == (1, True)
    assert not (tmp_path / "journal").exists(), "said before anything was measured"


@pytest.mark.skipif(sys.platform == "win32", reason="a text file is no program on Windows")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/sh\necho usage: true\n", "it is no llama-server: its --help does not name"),
        ("#!/bin/sh\necho libx.so: cannot open\nexit 127\n", "exit code 127: libx.so: cannot open"),
        ("#!/no/such/shell\n", "it cannot be run"),
        (None, "it is a folder"),
    ],
)
def test_against_another_program(
    script: str | None, why: str, shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    engines(fake_backend, tmp_path / "journal")
    program = tmp_path / "program"
    if script is None:
        program.mkdir()
    else:
        program.write_text(script)
        program.chmod(0o755)
    args = ("bench", "decode", smollm2, "--backend", "fake", "--draft", "none", "--tokens", 4)
    code, out, err = shell(*args, "--against", program)
    assert (code, out) == (1, "")
    assert err.startswith(f"error: cannot measure against {program}: ")
    assert why in err
    assert "; name a llama-server program with --against" in err
    assert err.count("\n") == 1
    assert not (tmp_path / "journal").exists()


def test_against_names_the_stock_server(
    shell: Shell, smollm2: Path, server_dir: Path, fake_backend: Any, tmp_path: Path
) -> None:
    """The real stock backend takes the program that --against names."""
    fake_backend("fake", ["--journal", tmp_path / "journal"])
    server = next(p for p in server_dir.iterdir() if p.stem == "llama-server")
    prompts = tmp_path / "prompts"
    prompts.write_text("Name a colour.")
    code, out, err = shell(
        "bench", "decode", smollm2, "--backend", "fake", "--draft", "none", "--rounds", 1,
        "--tokens", 4, "--threads", 1, "--against", server, "--prompts", prompts, "--json",
    )  # fmt: skip
    assert code == 0, err
    assert json.loads(out)["servers"]["stock plain"] == str(server)

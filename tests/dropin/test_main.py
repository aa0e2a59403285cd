"""The Python side as the program starts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.__main__ import say
from srhpm_plugin.dropin.answer import Answer
from srhpm_plugin.dropin.note import Note

# Runs the module with a decision that is tampered with.
TAMPERED = """
import os, sys
import srhpm_plugin.dropin.decide as decide
made = decide.decide
def tampered(call):
    {lines}
    return made(call)
decide.decide = tampered
import srhpm_plugin.dropin.__main__ as main
os._exit(main.main(sys.argv[1:]))
"""


@pytest.fixture
def ask(place: Any, real_server: Path) -> Callable[..., subprocess.CompletedProcess[bytes]]:
    """``ask(*args, lines="")``: the module's answer for these arguments."""

    def run(*args: str | Path, lines: str = "pass") -> subprocess.CompletedProcess[bytes]:
        argv = ["--note", Note.path_for(place.program), "--", *args]
        return subprocess.run(
            [sys.executable, "-c", TAMPERED.format(lines=lines), *map(str, argv)],
            env={**place.env, "SRHPM_SERVER": str(real_server)},
            capture_output=True,
            timeout=120,
            check=False,
        )

    return run


def words(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr
    found = done.stdout.decode().split("\0")
    assert (found[0], found[-2], found[-1]) == ("SRHPM1", "END", "")
    return found


def test_only_the_answer_is_on_standard_output(
    ask: Callable[..., Any], smollm2: Path, real_server: Path
) -> None:
    done = ask("-m", smollm2, lines="print('stray'); os.write(1, b'raw'); os.system('echo shell')")
    assert str(real_server) in words(done)
    for stray in (b"stray", b"raw", b"shell"):
        assert stray not in done.stdout
        assert stray in done.stderr


@pytest.mark.parametrize(
    "lines",
    [
        "raise SystemExit(0)",
        "raise KeyboardInterrupt",
        "raise MemoryError",
        "1 / 0",
        "sys.exit('x')",
    ],
)
def test_what_a_decision_may_raise(lines: str, ask: Callable[..., Any], smollm2: Path) -> None:
    done = ask("-m", smollm2, lines=lines)
    assert done.returncode != 0
    assert done.stdout == b""
    assert done.stderr.startswith(b"srhpm: no decision")


def test_who_it_is_handed_over_to(ask: Callable[..., Any], place: Any, smollm2: Path) -> None:
    own = ask("-m", smollm2, "--embedding").stderr.decode()
    assert "is handed over to the host's own server: it serves embeddings" in own
    place.note(original=None)
    ours = ask("-m", smollm2, "--embedding").stderr.decode()
    assert "is handed over to our server with everything of SR-HPM off: it serves" in ours


def test_threads_left_behind_hold_nothing_up(ask: Callable[..., Any], smollm2: Path) -> None:
    lines = "import threading, time; threading.Thread(target=time.sleep, args=(600,)).start()"
    words(ask("-m", smollm2, lines=lines))


def test_a_note_that_is_gone(place: Any, ask: Callable[..., Any]) -> None:
    Note.path_for(place.program).unlink()
    assert ask("-m", "x").returncode != 0


def test_another_version_of_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "srhpm_plugin.dropin", "what", "is", "this"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "srhpm-plugin install" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are scripts")
def test_a_python_without_our_package(place: Any) -> None:
    base = getattr(sys, "_base_executable", sys.executable)
    probe = [base, "-I", "-c", "import srhpm_plugin"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        pytest.fail("the tests run from an interpreter that is not a virtual environment's")
    place.note(python=Path(base))
    assert place.started("-m", "x")["who"] == "original"


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are scripts")
def test_a_home_that_was_removed(place: Any, real_server: Path, smollm2: Path) -> None:
    """It is not made again: nothing of ours runs any more, and who removed it wants none of it."""
    home = place.home / "of the note"
    place.note(home=home)
    started = place.started("-m", smollm2, env={"SRHPM_SERVER": str(real_server)})
    assert started["who"] == "original"
    assert f"own server: {home} (SRHPM_HOME) is gone" in started["stderr"]
    assert not home.exists()


@pytest.mark.skipif(os.name != "posix", reason="the stand-ins are scripts")
def test_a_second_start_comes_from_the_cache(
    place: Any, smollm2: Path, stand_in: Callable[..., Path], tmp_path: Path
) -> None:
    """And is the same, with a record of its own."""
    model = tmp_path / "alone" / "model.gguf"
    model.parent.mkdir()
    shutil.copy(smollm2, model)
    ours = stand_in(tmp_path / "ours" / "llama-server", "ours", "--help")
    env = {"SRHPM_SERVER": str(ours), "SRHPM_KERNELS": "speed", "SRHPM_DRAFT": "none"}
    first = place.started("-m", model, "--port", "50001", env=env)
    if first["who"] == "original":
        pytest.fail(f"no plan of ours: {first['stderr']}")
    second = place.started("-m", model, "--port", "50002", env=env)
    assert [w.replace("50001", "50002") for w in first["argv"]] == second["argv"]
    assert first["env"]["SRHPM_RECORD"] != second["env"]["SRHPM_RECORD"]
    plans = list((place.home / "cache" / "dropin").glob("*.plan"))
    assert len(plans) == 1
    # what is kept is what is used: a mark in it shows in the next start
    plans[0].write_text(plans[0].read_text().replace('"--threads"', '"--marked"', 1))
    assert "--marked" in place.started("-m", model, "--port", "3", env=env)["argv"]


@pytest.mark.parametrize(
    "text",
    [
        "error: no such thing",
        "Error loading model",
        "it ran out of memory",
        "out of device memory",
        "failed to allocate 3 GiB",
        "not enough memory here",
        "fatal error: panic: CUDA error",
        "GGML_ASSERT(x)",
        "two\nlines",
    ],
)
def test_hosts_are_not_alarmed(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Ollama takes lines with these words for the reason of a failure."""
    say(text)
    line = capsys.readouterr().err
    assert line.startswith("srhpm: ")
    assert line.count("\n") == 1
    for word in (
        "error:",
        "Error:",
        "panic:",
        "fatal",
        "error loading model",
        "CUDA error",
        "out of memory",
        "out of device memory",
        "failed to allocate",
        "not enough memory",
        "GGML_ASSERT",
    ):
        assert word not in line


def test_answers_keep_bytes_that_are_no_text(tmp_path: Path) -> None:
    answer = Answer(tmp_path / "server", (("A", "ü"),))
    assert "ü".encode() in answer.to_bytes()
    if os.name == "posix":
        odd = Answer(tmp_path / "server", (("A", "\udcff"),))
        assert b"\xff\0" in odd.to_bytes()
    with pytest.raises(ValueError, match="NUL"):
        Answer(tmp_path / "server", (("A", "a\0b"),)).to_bytes()

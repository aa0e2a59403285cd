"""What became of each start, and when a model is handed over for it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from srhpm_plugin.cli import cli
from srhpm_plugin.dropin import records
from srhpm_plugin.dropin.records import LIVE, all_blocked, begin, blocked, clear, read_live
from srhpm_plugin.dropin.status import blocked_models, launch_lines, launches

FACTS = {"host": "ollama", "model": "qwen:4b", "path": "/models/qwen.gguf", "kind": "srhpm"}


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def launch(dead: int) -> Callable[..., Path]:
    """``launch(said, key)``: a start that is over, and what its server said."""

    def make(said: str | None = None, key: str = "k", **facts: Any) -> Path:
        path = begin(key, {**FACTS, "live": True, **facts})
        assert path is not None
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "pid": dead}))
        if said is not None:
            path.with_suffix(LIVE).write_text(said)
        return path

    return make


READY = "state=ready\ntokens=120\nms=4000\ndrafted=80\naccepted=60\n"
LOADING = "state=loading\n"


@pytest.mark.parametrize(
    ("live", "why"),
    [
        (READY, None),
        ("state=stopped\nreason=loading the model: asked to stop\n", None),
        ("state=failed\nreason=loading the model: it gave up\n", "it gave up"),
        ("state=failed\nreason=starting: illegal instruction\n", "illegal instruction"),
        ("state=failed\nreason=listening: it gave up\n", None),
        (LOADING, None),
        (None, None),
    ],
)
def test_one_end(live: str | None, why: str | None, launch: Callable[..., Path]) -> None:
    launch(live)
    found = blocked("k")
    assert found is None if why is None else found is not None and why in found
    assert blocked("k") == found, "it is judged once"
    assert blocked("other") is None


@pytest.mark.parametrize("live", [LOADING, None, "damage"])
def test_gone_twice_without_a_word(live: str | None, launch: Callable[..., Path]) -> None:
    launch(live)
    assert blocked("k") is None
    launch(live)
    found = blocked("k")
    assert found is not None
    assert "twice" in found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """``clock(minutes)`` moves it on."""
    now = [time.time()]

    def tick() -> float:
        now[0] += 1e-3
        return now[0]

    monkeypatch.setattr(records.time, "time", tick)

    def advance(minutes: float) -> None:
        now[0] += 60 * minutes

    return advance


def test_gone_twice_is_tried_again_later(
    launch: Callable[..., Path], clock: Callable[[float], None]
) -> None:
    for _ in range(2):
        launch(LOADING)
        found = blocked("k")
    assert found is not None
    assert "tries again" in found
    for _ in range(2):  # what the host's own server does in between says nothing of ours
        clock(10)
        launch(None, kind="stock")
        assert blocked("k") == found
    assert [row["reason"] for row in blocked_models()] == [found]
    clock(10)
    assert blocked("k") is None
    assert blocked_models() == []
    # once more: handed over at once, and for longer
    launch(LOADING)
    assert "3 times" in (blocked("k") or "")
    clock(31)
    assert blocked("k") is not None
    clock(30)
    assert blocked("k") is None
    # it went well: all is forgotten
    launch(READY)
    assert blocked("k") is None
    launch(LOADING)
    assert blocked("k") is None


def test_gone_twice_long_ago(launch: Callable[..., Path], clock: Callable[[float], None]) -> None:
    """Looked at only when the next start comes, perhaps tomorrow."""
    launch(LOADING)
    assert blocked("k") is None
    launch(LOADING)
    clock(24 * 60)
    assert blocked("k") is None


def test_a_pause_ends_at_some_time(
    launch: Callable[..., Path], clock: Callable[[float], None]
) -> None:
    for _ in range(40):
        launch(LOADING)
        blocked("k")
        clock(24 * 60 + 1)
        assert blocked("k") is None
    launch(LOADING)
    assert blocked("k") is not None
    clock(-48 * 60)  # a clock that was wrong
    assert blocked("k") is None


def test_a_start_that_failed_stays_handed_over(
    launch: Callable[..., Path], clock: Callable[[float], None]
) -> None:
    launch("state=failed\nreason=loading the model: it gave up\n")
    found = blocked("k")
    clock(100 * 24 * 60)
    assert blocked("k") == found is not None


def test_a_start_that_went_well_in_between(launch: Callable[..., Path]) -> None:
    for live in (LOADING, READY, LOADING):
        launch(live)
        assert blocked("k") is None


def test_the_silence_of_a_server_that_never_speaks(launch: Callable[..., Path]) -> None:
    for _ in range(3):
        launch(None, live=False)
        assert blocked("k") is None


def test_one_that_still_loads_is_not_judged(launch: Callable[..., Path]) -> None:
    for _ in range(3):
        path = begin("k", {**FACTS, "live": True})
        assert path is not None
        path.with_suffix(LIVE).write_text(LOADING)  # our own parent lives
        assert blocked("k") is None


def test_a_number_used_again_is_another_process(dead: int) -> None:
    if sys.platform == "linux":
        assert records.alive(os.getpid(), records.started(os.getpid()))
        assert not records.alive(os.getpid(), 1)
    assert not records.alive(dead, 1)
    assert not records.alive("x", None)
    assert not records.alive(-1, None)


def test_killed_for_memory(launch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "oom_kills", lambda: 3)
    launch(LOADING)
    monkeypatch.setattr(records, "oom_kills", lambda: 4)
    found = blocked("k")
    assert found is not None
    assert "memory ran out" in found


def test_the_counter_of_the_kernel() -> None:
    found = records.oom_kills()
    assert found is None if sys.platform != "linux" else isinstance(found, int)


def test_it_may_try_again(launch: Callable[..., Path]) -> None:
    for name in ("qwen:4b", "qwen.gguf", "/models/qwen.gguf"):
        launch("state=failed\nreason=x: y\n")
        assert [ledger["model"] for ledger, _ in all_blocked()] == ["qwen:4b"]
        assert clear("another") == []
        assert clear(name) == ["qwen:4b"]
        assert blocked("k") is None


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"state=\n",
        b"state=ready\ntokens=-1\nms=x\ndrafted=99999999999999999999999\n",
        b"state=ready" * 1000,
        b"=====\n=\n",
        b"state=ready\nstate",
    ],
)
def test_damaged_live_files(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.with_suffix(LIVE).write_bytes(text)
    live = read_live(path)
    assert live.state in ("", "ready")
    assert (live.tokens, live.seconds, live.drafted) == (0, 0, 0)


def test_a_reason_drives_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.with_suffix(LIVE).write_text("state=failed\nreason=a\x1b[31m" + "b" * 1000 + "\n")
    reason = read_live(path).reason
    assert reason.startswith("a[31mb")
    assert len(reason) == 300


def test_damaged_records(launch: Callable[..., Path]) -> None:
    for content in (b"", b"[]", b"\xff", b'{"time": "x", "model": 3, "predicted": []}'):
        launch(READY).write_bytes(content)
    for path in (records.folder() / "by-key").iterdir():
        path.write_bytes(b"{")
    assert blocked("k") is None
    assert all_blocked() == []
    assert len(launches(10)) == 4
    assert launch_lines(launches(10))


def test_bounded_and_for_the_owner_alone(
    launch: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MOST", 4)
    for i in range(7):
        launch(READY, key=str(i))
    names = sorted(path.suffix for path in records.folder().iterdir() if path.is_file())
    assert names == [".json"] * 4 + [LIVE] * 4
    assert len(list((records.folder() / "by-key").iterdir())) == 4
    if os.name == "posix":
        for path in records.folder().rglob("*.json"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SRHPM_HOME", str(tmp_path / "file"))
    assert begin("k", FACTS) is None
    assert blocked("k") is None
    assert launches(3) == []


def test_status_shows_what_was_measured(launch: Callable[..., Path]) -> None:
    launch(READY, drafter="draft-simple small.gguf", predicted=25.0, reason="our kernels")
    (row,) = launches(5)
    assert row["tok_s"] == 30.0
    assert row["acceptance"] == 0.75
    assert row["state"] == "ended"
    done = CliRunner().invoke(cli, ["status"])
    assert done.exit_code == 0, done.output
    for words in ("qwen:4b", "30.0 tok/s", "predicted 25.0", "75%", "small.gguf", "our kernels"):
        assert words in done.output


def test_a_port_that_is_taken_says_so(launch: Callable[..., Path]) -> None:
    launch("state=failed\nreason=listening: it gave up\n")
    (row,) = launches(5)
    assert "is another program at its port?" in row["failure"]
    assert "is another program at its port?" in "\n".join(launch_lines([row]))


def test_status_names_what_is_handed_over_and_the_way_out(launch: Callable[..., Path]) -> None:
    launch("state=failed\nreason=loading the model: it gave up\n")
    (row,) = blocked_models()
    assert row["fix"] == "srhpm-plugin status --retry qwen:4b"
    runner = CliRunner()
    shown = runner.invoke(cli, ["status"])
    assert "it gave up" in shown.output
    assert row["fix"] in shown.output
    told = json.loads(runner.invoke(cli, ["status", "--json"]).output)
    assert told["handed_over"] == [row]
    doctor = runner.invoke(cli, ["doctor"])
    assert row["fix"] in doctor.output
    assert runner.invoke(cli, ["status", "--retry", "qwen:4b"]).exit_code == 0
    assert blocked_models() == []
    again = runner.invoke(cli, ["status", "--retry", "qwen:4b"])
    assert again.exit_code != 0


@pytest.mark.parametrize(
    ("facts", "state"),
    [({"kind": "stock"}, "handed over"), ({}, "gone while loading"), ({"live": False}, "ended")],
)
def test_states(facts: dict[str, Any], state: str, launch: Callable[..., Path]) -> None:
    launch(None, **facts)
    assert launches(1)[0]["state"] == state

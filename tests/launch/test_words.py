"""Log lines, ends of processes, addresses: the small pieces of a launch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srhpm_plugin import home
from srhpm_plugin.errors import UserError
from srhpm_plugin.launch import childmode, ends, logfile, ports


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ""),
        (["", "  "], ""),
        (["one", "two", ""], "two"),
        (
            [
                "0.00.003.982 E gguf_init_from_reader: invalid magic characters: 'hell'",
                "0.00.004.063 E llama_model_load: error loading model: failed to load model from x",
                "0.00.004.128 E srv    load_model: failed to load model, 'x'",
                "0.00.004.129 I srv    operator(): operator(): cleaning up before exit...",
                "0.00.004.545 E srv  llama_server: exiting due to model loading error",
            ],
            "gguf_init_from_reader: invalid magic characters: 'hell'",
        ),
        (
            ["0.00.004.128 E srv    load_model: failed to load model, 'x'", "0.00.1.2 I srv  bye"],
            "load_model: failed to load model, 'x'",
        ),
        (
            ["ggml.c:10: GGML_ASSERT(n > 0) failed", "\x1b[31m#0 0x1234 in main\x1b[0m"],
            "ggml.c:10: GGML_ASSERT(n > 0) failed",
        ),
        (["\x1b[32mall is well\x1b[0m"], "all is well"),
    ],
)
def test_the_line_that_tells_why(lines: list[str], expected: str) -> None:
    assert logfile.cause(lines) == expected


def test_ends_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "oom_kills", lambda: 3)
    assert ends.describe(-9, oom_before=2) == "killed by the kernel, memory ran out (SIGKILL)"
    assert "by hand" in ends.describe(-9, oom_before=3)
    assert ends.describe(1) == "exit code 1"
    assert ends.describe(0xC0000005) == "access violation (0xC0000005)"
    assert ends.describe(-1073741819) != ""
    assert ends.describe(-99) == "ended by signal 99"


def test_load_states() -> None:
    line = (
        'cmd_child_to_router:state:{"state":"loading","payload":{"current":"text_model","value":2}}'
    )
    assert childmode.parse(line) == childmode.LoadState("model", 1.0)
    for stamp in ("0.367.648 ", "0.00.367.648 I "):  # another thread's, written in between
        assert childmode.is_ours(stamp + line)
        assert childmode.parse(stamp + line) == childmode.LoadState("model", 1.0)
    assert not childmode.is_ours("srv 0.1: " + line)
    for other in (
        "cmd_child_to_router:state:{",
        "cmd_child_to_router:state:[]",
        'cmd_child_to_router:state:{"payload":{"current":"x","value":"y"}}',
        "cmd_child_to_router:other",
        "loading",
    ):
        assert childmode.parse(other) is None


def test_addresses() -> None:
    assert ports.is_loopback("127.0.0.1")
    assert ports.is_loopback("127.9.9.9")
    assert ports.is_loopback("::1")
    assert ports.is_loopback("LOCALHOST")
    assert not ports.is_loopback("0.0.0.0")
    assert not ports.is_loopback("localhost.evil.example")
    assert ports.base_url("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert ports.base_url("::", 80) == "http://[::1]:80"
    for host in ("", "127.0.0.1,0.0.0.0", "/tmp/x.sock", "http://x"):
        with pytest.raises(UserError, match="cannot listen"):
            ports.check_exposure(host, "key")
    for port in (0, -1, 65536):
        with pytest.raises(UserError, match="ports are 1 to 65535"):
            ports.require_free("127.0.0.1", port)
    with pytest.raises(UserError, match=r"cannot listen on 203\.0\.113\.7"):
        ports.require_free("203.0.113.7", 8080)


def test_log_halves(tmp_path: Path) -> None:
    log = logfile.LogFile(tmp_path / "x.log", limit=100)
    for number in range(40):
        log.write(f"line {number}")
    log.close()
    log.write("after the end")
    both = (tmp_path / "x.log").read_text(), (tmp_path / "x.log.1").read_text()
    assert "line 39" in both[0]
    assert sum(map(len, both)) <= 100
    assert log.tail[-1] == "after the end"
    if os.name == "posix":
        assert (tmp_path / "x.log").stat().st_mode & 0o077 == 0


def test_old_logs_go() -> None:
    folder = home.cache_dir() / "logs"
    folder.mkdir(parents=True)
    for number in range(15):
        path = folder / f"llama-server-{number:02d}.log"
        path.touch()
        os.utime(path, (number, number))
    new = logfile.default_path("llama-server")
    assert new.parent == folder
    assert len(list(folder.iterdir())) == 9
    assert not (folder / "llama-server-05.log").exists()
    assert (folder / "llama-server-14.log").exists()

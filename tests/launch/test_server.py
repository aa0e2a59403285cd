"""Starting, watching and ending servers, with a scripted one and with the real one."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from srhpm_plugin.backend import Command
from srhpm_plugin.errors import UserError
from srhpm_plugin.launch import Progress, serve
from srhpm_plugin.launch.client import Client

Fake = tuple[str, str]


def command(fake: Fake, *options: object) -> Command:
    return Command((*fake, *map(str, options)), {})


def gone(pid: int) -> bool:
    """Whether the process has ended within ten seconds (a zombie has)."""
    for _ in range(200):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_ready_then_gone(fake_server: Fake) -> None:
    with serve(command(fake_server)) as server:
        assert httpx.get(server.base_url + "/health").status_code == 200
        assert server.returncode is None
        server.check()
        pid = server.pid
        assert psutil.Process(pid).ppid() == os.getpid()
    assert gone(pid)


def test_an_exception_leaves_nothing_behind(fake_server: Fake, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with (
        pytest.raises(ZeroDivisionError),
        serve(command(fake_server, "--grandchild", pid_file)) as server,
    ):
        pid = server.pid
        _ = 1 / 0
    assert gone(pid)
    assert gone(int(pid_file.read_text()))


def test_a_stubborn_server_is_killed(fake_server: Fake) -> None:
    with serve(command(fake_server, "--stubborn"), stop_timeout=0.3) as server:
        pid = server.pid
    assert gone(pid)


def test_a_real_server_leaves_when_asked(server_dir: Path, smollm2: Path) -> None:
    argv = (str(server_dir / "llama-server"), "-m", str(smollm2), "-c", "512", "-t", "1")
    seen: list[Progress] = []
    with serve(Command(argv, {}), on_progress=seen.append, stop_timeout=30) as server:
        with Client(server.base_url) as client:
            prompt = client.chat_prompt("Name a colour.")
            assert "Name a colour." in prompt
            assert prompt != "Name a colour."
            first = client.complete(prompt, 8, n_probs=3)
            again = client.complete(prompt, 8)
            assert client.text_of(first.tokens[0]) == first.candidates[0][0].text
        assert 0 < len(first.tokens) <= 8
        assert first.tokens == again.tokens
        assert first.tokens[0] == first.candidates[0][0].token
        pid = server.pid
        supervisor_code = server
    assert gone(pid)
    assert supervisor_code.returncode == 0, "ended by itself, not killed"
    assert seen
    assert "cmd_child_to_router" not in supervisor_code.log.read_text()


def test_a_real_server_names_a_damaged_model(
    server_dir: Path, smollm2: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    with smollm2.open("rb") as file:
        cut.write_bytes(file.read(20_000_000))
    argv = (str(server_dir / "llama-server"), "-m", str(cut))
    with pytest.raises(UserError) as caught, serve(Command(argv, {})):
        pass
    assert caught.value.what == "llama-server did not start"
    assert "model is corrupted or incomplete" in caught.value.why


def test_loading_is_reported_and_awaited(fake_server: Fake) -> None:
    line = 'cmd_child_to_router:state:{"payload":{"current":"spec_model","value":0.25}}'
    seen: list[Progress] = []
    fake = command(fake_server, "--load-seconds", 1, "--print", line)
    with serve(fake, on_progress=seen.append) as server:
        assert httpx.get(server.base_url + "/health").status_code == 200
    assert seen[-1].elapsed >= 0.5
    assert (seen[-1].stage, seen[-1].fraction) == ("drafter", 0.25)


def test_start_timeout(fake_server: Fake) -> None:
    with (
        pytest.raises(UserError, match=r"not ready after 1 s"),
        serve(command(fake_server, "--load-seconds", 60), start_timeout=1),
    ):
        pass


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_killed_while_loading(fake_server: Fake, name: str) -> None:
    fake = command(
        fake_server, "--print", "reading tensors", "--die-loading", int(getattr(signal, name))
    )
    with pytest.raises(UserError) as caught, serve(fake):
        pass
    line = caught.value.line()
    assert f"({name})" in line
    assert "last log line: reading tensors" in line
    assert "see the log " in line
    assert "\n" not in line


def test_exit_while_loading(fake_server: Fake) -> None:
    fake = command(fake_server, "--print", "error: unknown argument: --x", "--die-loading", 0)
    with (
        pytest.raises(UserError, match=r"exit code 1, last log line: error: unknown arg"),
        serve(fake),
    ):
        pass


def test_death_in_use_replaces_the_broken_connection(fake_server: Fake) -> None:
    fake = command(fake_server, "--die-at", 1)
    with (
        pytest.raises(UserError) as caught,
        serve(fake) as server,
        Client(server.base_url) as client,
    ):
        client.complete("hello", 4)
    assert "(SIGKILL)" in caught.value.why
    assert "ggml_abort: everything broke" in caught.value.why
    assert str(server.log) in (caught.value.do or "")


def test_check_and_wait_after_death(fake_server: Fake) -> None:
    with serve(command(fake_server)) as server:
        assert server.wait(0.05) is None
        psutil.Process(server.pid).kill()
        assert server.wait(10) == -signal.SIGKILL
        with pytest.raises(UserError, match="died"):
            server.check()


def test_port_in_use_names_a_free_one(fake_server: Fake) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UserError) as caught, serve(command(fake_server), port=port):
            pass
    assert caught.value.what == f"port {port} is in use"
    free = int((caught.value.do or "").split()[-1])
    assert free != port


def test_port_asked_for_is_used(fake_server: Fake) -> None:
    with serve(command(fake_server)) as first:
        free = int(first.base_url.rsplit(":", 1)[1])
    with serve(command(fake_server), port=free) as server:
        assert server.base_url == f"http://127.0.0.1:{free}"


def test_a_free_port_taken_in_between_is_tried_again(fake_server: Fake, tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    failures.write_text("2")
    with serve(command(fake_server, "--bind-fails", failures)) as server:
        assert httpx.get(server.base_url + "/health").status_code == 200
    assert failures.read_text() == "0"


def test_the_port_asked_for_lost_in_between(fake_server: Fake, tmp_path: Path) -> None:
    failures = tmp_path / "failures"
    failures.write_text("1")
    with serve(command(fake_server)) as first:
        port = int(first.base_url.rsplit(":", 1)[1])
    with (
        pytest.raises(UserError, match=f"port {port} is in use"),
        serve(command(fake_server, "--bind-fails", failures), port=port),
    ):
        pass


def test_another_programs_answer_is_not_ours(
    fake_server: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something that answers 200 on the port does not make our server ready."""
    with serve(command(fake_server)) as other:
        port = int(other.base_url.rsplit(":", 1)[1])
        monkeypatch.setattr("srhpm_plugin.launch.ports.require_free", lambda host, port: None)
        # Sleeps without ever listening, as a server that has not come to it yet.
        idle = Command((fake_server[0], "-c", "import time; time.sleep(60)"), {})
        with (
            pytest.raises(UserError, match="not ready after"),
            serve(idle, port=port, start_timeout=1),
        ):
            pass


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "my-computer"])
def test_beyond_loopback_needs_a_key(fake_server: Fake, host: str) -> None:
    with pytest.raises(UserError, match="--api-key"), serve(command(fake_server), host=host):
        pass


@pytest.mark.parametrize("key", ["", " ", "a,b", "a\nb", "sécret"])
def test_unusable_keys(fake_server: Fake, key: str) -> None:
    with (
        pytest.raises(UserError, match="cannot use this API key"),
        serve(command(fake_server), api_key=key),
    ):
        pass


def test_the_key_stays_out_of_argv(
    fake_server: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_ARG_N_PREDICT", "7")
    monkeypatch.setenv("LLAMA_API_KEY", "from outside")
    dump = tmp_path / "dump"
    fake = command(fake_server, "--dump-env", dump)
    with serve(fake, host="0.0.0.0", api_key="secret-key") as server:
        assert server.base_url.startswith("http://127.0.0.1:")
        assert "secret-key" not in " ".join(psutil.Process(server.pid).cmdline())
        with pytest.raises(UserError, match="Invalid API Key"), Client(server.base_url) as client:
            client.complete("hello", 1)
        with Client(server.base_url, "secret-key") as client:
            assert len(client.complete("hello", 3).tokens) == 3
    got = json.loads(dump.read_text())
    assert "secret-key" not in json.dumps(got["argv"])
    assert got["env"]["LLAMA_API_KEY"] == "secret-key"
    assert "LLAMA_ARG_N_PREDICT" not in got["env"], "would change the plan unseen"
    assert got["env"]["LLAMA_ARG_CORS_ORIGINS"] == "localhost"


def test_missing_program_model_and_drafter(fake_server: Fake, tmp_path: Path) -> None:
    here = tmp_path / "model.gguf"
    here.touch()
    gone_file = tmp_path / "gone.gguf"
    cases = [
        (Command((str(tmp_path / "no-server"),), {}), "no such file"),
        (Command((str(here),), {}), "not a program"),
        (command(fake_server, "-m", gone_file), f"cannot load model {gone_file}"),
        (command(fake_server, "-m", tmp_path), "it is a folder"),
        (command(fake_server, "-m", here, "-md", gone_file), f"cannot load drafter {gone_file}"),
    ]
    for wrong, message in cases:
        with pytest.raises(UserError) as caught, serve(wrong):
            pass
        assert message in caught.value.line()


def test_a_program_of_another_machine(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_bytes(b"\x00\x01not a program")
    program.chmod(0o755)
    with (
        pytest.raises(UserError, match=r"cannot run|did not start"),
        serve(Command((str(program),), {})),
    ):
        pass


def test_log_is_kept_and_capped(fake_server: Fake, tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    fake = command(fake_server, "--log-bytes", 20 << 20, "--print", "first")
    with serve(fake, log=log) as server:
        assert server.tail()[-1].startswith("020971500")
    both = log.stat().st_size + log.with_name("server.log.1").stat().st_size
    assert both <= 16 << 20
    assert log.read_text().splitlines()[-1].startswith("020971500")


def test_many_servers_from_threads_that_end(fake_server: Fake) -> None:
    """A server lives on when the thread that entered `serve` has ended."""
    managers = []

    def enter() -> None:
        manager = serve(command(fake_server))
        managers.append((manager, manager.__enter__()))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    manager, server = managers[0]
    try:
        time.sleep(0.3)
        server.check()
        assert httpx.get(server.base_url + "/health").status_code == 200
    finally:
        manager.__exit__(None, None, None)
    assert gone(server.pid)

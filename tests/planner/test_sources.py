"""Where models are looked for, and which files count."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.home import config_dir, data_dir
from srhpm_plugin.planner import search
from srhpm_plugin.planner.sources import known_models

Write = Callable[..., Path]


@pytest.fixture
def write() -> Write:
    """A tiny GGUF; ``arch`` and ``kind`` are the first fields of its header."""

    def make(path: Path, arch: str = "llama", kind: str | None = None) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        w = gguf.GGUFWriter(path, arch)
        if kind:
            w.add_type(kind)
        w.add_block_count(1)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.close()
        return path

    return make


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SRHPM_MODELS", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


def link(at: Path, to: Path) -> None:
    at.parent.mkdir(parents=True, exist_ok=True)
    try:
        at.symlink_to(to, target_is_directory=to.is_dir())
    except OSError as error:  # Windows without the right to make links
        pytest.fail(f"this account cannot make symbolic links: {error}")


def test_every_source(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = write(tmp_path / "near" / "target.gguf")
    sibling = write(tmp_path / "near" / "sibling.gguf")
    write(tmp_path / "near" / "deeper" / "not-looked-at.gguf")
    listed = write(tmp_path / "listed" / "a" / "b" / "deep.gguf")
    named = write(tmp_path / "named.gguf")
    monkeypatch.setenv("SRHPM_MODELS", os.pathsep.join((str(tmp_path / "listed"), str(named))))
    configured = write(tmp_path / "conf" / "c.gguf")
    config_dir().mkdir(parents=True)
    folder = (tmp_path / "conf").as_posix()
    (config_dir() / "config.toml").write_text(f'[models]\nfolders = ["{folder}"]\n', "utf-8")
    ours = write(data_dir() / "models" / "ours.gguf")
    repo = tmp_path / "hf" / "hub" / "models--owner--repo-GGUF"
    blob = write(repo / "blobs" / "0123abcd")
    snapshot = repo / "snapshots" / "rev" / "model.gguf"
    link(snapshot, blob)
    assert set(known_models(near)) == {near, sibling, listed, named, configured, ours, snapshot}


def test_what_counts(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path / "m"))
    folder = tmp_path / "m"
    model = write(folder / "sha256-0123")  # a blob without extension
    first = write(folder / "big-00001-of-00003.gguf")
    write(folder / "big-00002-of-00003.gguf")
    write(folder / "mmproj-big-f16.gguf")
    write(folder / "projector.gguf", arch="clip")
    write(folder / "vision.gguf", kind="mmproj")
    write(folder / "lora.gguf", kind="adapter")
    write(folder / "imatrix.gguf", kind="imatrix")
    (folder / "notes.gguf").write_text("no model")
    (folder / "empty.gguf").touch()
    assert set(known_models()) == {model, first}


def test_links_that_go_round(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "root"
    model = write(root / "a" / "model.gguf")
    link(root / "a" / "up", root)
    link(root / "self", root / "self")
    link(root / "again.gguf", model)
    monkeypatch.setenv("SRHPM_MODELS", str(root))
    found = known_models()
    assert len(found) == 1
    assert found[0].samefile(model)


def test_a_search_ends(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / "root"
    for _ in range(12):
        deep /= "d"
    write(deep / "too-deep.gguf")
    for i in range(40):
        (tmp_path / "root" / f"{i:02}.txt").touch()
    late = write(tmp_path / "root" / "zz.gguf")
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path / "root"))
    assert known_models() == (late,)
    monkeypatch.setattr(search, "MOST_ENTRIES", 30)
    assert known_models() == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a POSIX thing")
def test_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path))
    assert known_models() == ()


@pytest.mark.parametrize(
    "text", ["[models\n", "[models]\nfolders = 3\n", "[models]\nfolders = [1]\n", "models = 1\n"]
)
def test_a_damaged_configuration(text: str) -> None:
    config_dir().mkdir(parents=True)
    (config_dir() / "config.toml").write_text(text, "utf-8")
    with pytest.raises(UserError, match=r"config\.toml"):
        known_models()


def test_nothing_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRHPM_MODELS", str(tmp_path / "gone"))
    assert known_models(tmp_path / "gone" / "too.gguf") == ()

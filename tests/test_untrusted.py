"""What hosts wrote: names that must not leave a folder, files that must not cost memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.untrusted import inside, read_json, read_yaml

BAD_NAMES = [
    "",
    ".",
    "..",
    "../x",
    "a/../../x",
    "a//x",
    "/etc/passwd",
    "\\\\server\\share",
    "C:\\x",
    "c:x",
    "a/b:stream",
    "a\0b",
    "a\nb",
    "a/\u202egnp.exe",  # right-to-left override
    "\uff0e\uff0e/x",  # full-width dots
    "\u2025/x",  # two dot leader
    "a\uff0fb",  # full-width slash
    "a\u2215b",  # division slash
    "a\uff3cb",  # full-width backslash
    "con",
    "a/NUL",
    "nul.gguf",
    "COM\u00b9",  # superscript one counts as a digit on Windows
    "x.",
    "x ",
    "lpt1.txt/x",
]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_names_that_could_leave(tmp_path: Path, name: str) -> None:
    assert inside(tmp_path, name) is None


@pytest.mark.parametrize(
    "name", ["a", "a/b.gguf", "a\\b", ".hidden", "Qwen3-4B 日本.gguf", "console"]
)
def test_names_that_stay(tmp_path: Path, name: str) -> None:
    found = inside(tmp_path, name)
    assert found is not None
    assert found.is_relative_to(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege there")
def test_a_link_that_leads_out(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("s")
    (root / "out").symlink_to(tmp_path)
    (root / "file").symlink_to(tmp_path / "secret")
    (root / "in").symlink_to(root)
    (root / "loop").symlink_to(root / "loop")
    assert inside(root, "out/secret") is None
    assert inside(root, "file") is None
    assert inside(root, "loop/x") is None
    assert inside(root, "in/x") == root / "in" / "x"


def test_a_root_behind_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    try:
        (tmp_path / "link").symlink_to(real, target_is_directory=True)
    except OSError:  # Windows without the privilege: nothing to try
        return
    assert inside(tmp_path / "link", "x") == tmp_path / "link" / "x"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"x": {"a": 1, "a": 2}}', "twice"),
        (b"[" * 100_000, "nested"),
        (b'{"a": NaN}', "NaN"),
        (b"\xff\xfe", "decode"),
        (b"{", "Expecting"),
        (b" " * (1 << 20) + b"{}", "more than"),
    ],
)
def test_hostile_json(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=why):
        read_json(path, most=1 << 20)


def test_json_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert read_json(path) == {"a": 1}


@pytest.mark.parametrize(
    "content",
    [
        b"a: &x [1]\nb: *x\n",
        b"a: !!python/object/apply:os.system [echo]\n",
        b"[" * 5000,
        b"a: 1\na: 2\n",
        b"a: b: c\n",
        b"\x80",
    ],
)
def test_hostile_yaml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError):
        read_yaml(path)


def test_no_regular_files(tmp_path: Path) -> None:
    readers: tuple[Callable[[Path], object], ...] = (read_json, read_yaml)
    for read in readers:
        with pytest.raises((ValueError, OSError)):
            read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(ValueError, match="regular"):
            read_json(tmp_path / "pipe")

"""Overlay and hooks: applied once, idempotent, refused when an anchor is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from srhpm_plugin.errors import UserError
from srhpm_plugin.native.hooks import Hook, apply_hooks, load_hooks, patch
from srhpm_plugin.native.recipe import native_dir

TAG = 11434
SOURCE = """#include "a.h"

struct first {
    if (p < limit) {
    }
};

struct second {
    if (p < limit) {
    }
    // only here
};
"""


def hook(**changes: object) -> Hook:
    values: dict[str, object] = {
        "name": "one",
        "file": "src/a.cpp",
        "anchor": "// only here",
        "text": "call();",
        "before": True,
        "line": True,
    }
    return Hook(**{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.cpp").write_text(SOURCE)
    return tmp_path


def read(tree: Path) -> str:
    return (tree / "src" / "a.cpp").read_text()


def test_line_before_keeps_indentation() -> None:
    assert "    call(); // srhpm: one\n    // only here\n" in patch(SOURCE, [hook()])


def test_line_after() -> None:
    assert "    // only here\n    call(); // srhpm: one\n" in patch(SOURCE, [hook(before=False)])


def test_inline_on_both_sides() -> None:
    after = hook(anchor="#include", before=False, line=False, text=" /*x*/")
    assert patch(SOURCE, [after]).startswith('#include /*x*/ "a.h"')
    before = hook(anchor='"a.h"', line=False, text="<b> ")
    assert patch(SOURCE, [before]).startswith('#include <b> "a.h"')


def test_scope_picks_one_of_two() -> None:
    inside = hook(
        scope="struct second {", anchor="if (p < limit", before=False, line=False, text=" && x"
    )
    patched = patch(SOURCE, [inside])
    assert patched.index(" && x") > patched.index("struct second")
    assert patched.count(" && x") == 1


def test_scope_ends_at_its_closing_brace() -> None:
    with pytest.raises(UserError, match="anchor is missing"):
        patch(SOURCE, [hook(scope="struct first {", anchor="// only here")])


def test_last_line_without_line_end() -> None:
    assert patch("int x;", [hook(anchor="int x", before=False)]) == "int x;call(); // srhpm: one\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"anchor": "no such text"}, "hook one does not apply: its anchor is missing in src/a.cpp"),
        ({"anchor": "if (p < limit"}, "occurs more than once"),
        ({"scope": "struct third"}, "its scope is missing"),
        ({"scope": "struct "}, "its scope occurs more than once"),
        ({"file": "src/b.cpp"}, "the source tree has no such file"),
    ],
)
def test_refused_and_nothing_written(tree: Path, changes: dict[str, object], message: str) -> None:
    good = hook(name="good")
    with pytest.raises(UserError, match=message):
        apply_hooks(tree, [good, hook(**changes)], TAG)
    assert read(tree) == SOURCE
    assert [p.name for p in tree.iterdir()] == ["src"]


def test_applied_once_and_idempotent(tree: Path) -> None:
    apply_hooks(tree, [hook()], TAG)
    once = read(tree)
    stamp = (tree / "src" / "a.cpp").stat().st_mtime_ns
    assert once.count("call();") == 1
    apply_hooks(tree, [hook()], TAG)
    assert read(tree) == once
    assert (tree / "src" / "a.cpp").stat().st_mtime_ns == stamp, "an unchanged file was rewritten"


def test_changed_hooks_start_from_the_pristine_text(tree: Path) -> None:
    apply_hooks(tree, [hook()], TAG)
    apply_hooks(tree, [hook(text="other();")], TAG)
    assert "other();" in read(tree)
    assert "call();" not in read(tree)
    apply_hooks(tree, [], TAG)
    assert read(tree) == SOURCE


def test_changed_file_is_not_overwritten(tree: Path) -> None:
    apply_hooks(tree, [hook()], TAG)
    mine = read(tree) + "// mine\n"
    (tree / "src" / "a.cpp").write_text(mine)
    with pytest.raises(UserError, match="changed since the hooks were applied"):
        apply_hooks(tree, [hook()], TAG)
    assert read(tree) == mine


def test_crash_before_the_file_was_written(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is ahead of the file: the next run must neither double nor refuse."""
    import srhpm_plugin.native.hooks as module

    apply_hooks(tree, [hook()], TAG)
    write = module._write

    def crash(path: Path, text: str) -> None:
        if path.name == "a.cpp":
            raise KeyboardInterrupt
        write(path, text)

    monkeypatch.setattr(module, "_write", crash)
    with pytest.raises(KeyboardInterrupt):
        apply_hooks(tree, [hook(text="other();")], TAG)
    monkeypatch.undo()
    apply_hooks(tree, [hook(text="other();")], TAG)
    assert read(tree).count("other();") == 1
    assert "call();" not in read(tree)


def test_line_ends_and_odd_bytes_survive(tree: Path) -> None:
    path = tree / "src" / "a.cpp"
    path.write_bytes(SOURCE.replace("\n", "\r\n").encode() + b"\xff\xfe")
    apply_hooks(tree, [hook(line=False, text="x ")], TAG)
    raw = path.read_bytes()
    assert raw.endswith(b"\xff\xfe")
    assert b"\n" not in raw.replace(b"\r\n", b"")


def test_tags(tree: Path) -> None:
    hooks = [hook(since=TAG + 1), hook(name="two", until=TAG, text="two();")]
    assert [a.applied for a in apply_hooks(tree, hooks, TAG)] == [False, True]
    assert "two();" in read(tree)
    assert "call();" not in read(tree)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[hook]]\nname='x'\n", "has no 'file'|exactly one"),
        ("[[hook", "cannot use hooks.toml"),
        ("x = 1", "has no 'hook'"),
        (
            "[[hook]]\nname='x'\nfile='../a'\nanchor='a'\nbefore={line='b'}\n",
            "leaves the source tree",
        ),
        (
            "[[hook]]\nname='x'\nfile='a'\nanchor='a'\nbefore={line='b'}\nafter={line='c'}\n",
            "exactly one of before and after",
        ),
        ("[[hook]]\nname='x'\nfile='a'\nanchor=' '\nbefore={line='b'}\n", "empty anchor"),
        ("[[hook]]\nname='x'\nfile='a'\nanchor='a'\nbefore={text='b'}\n", "neither"),
        ("[[hook]]\nname='x'\nfile='a'\nanchor='a'\nbefore={line='b'}\nfoo=1\n", "unknown keys"),
    ],
)
def test_malformed_hook_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "hooks.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        load_hooks(path)


def test_our_hooks_hold_one_line_each() -> None:
    hooks = load_hooks(native_dir() / "hooks.toml")
    assert len(hooks) > 20
    assert all("\n" not in h.text and len(h.anchor) < 120 for h in hooks)

"""Anchored hooks: the only way upstream sources are changed.

``native/hooks.toml`` describes the format. All hooks of a file are resolved against its pristine
text, so their order does not matter, and a file is written only when its content changes, so a
rebuild compiles nothing anew that did not change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ..errors import UserError

_ORIGINALS = ".srhpm-originals"
_STATE = ".srhpm-hooks.json"


@dataclass(frozen=True)
class Hook:
    """One insertion into one upstream file.

    Attributes:
        name: unique, for messages and ``native info``.
        file: POSIX path below the llama.cpp tree.
        anchor: text that occurs exactly once in the file, or in ``scope``.
        scope: text that occurs once and opens the block to search; the block ends at the next
            line starting with ``}``. Empty: the whole file.
        before: insert before (else after) the anchor.
        line: insert a line of its own (else inside the anchor's line).
        text: what is inserted.
        since, until: llama.cpp tags (``b`` left out) it applies to, inclusive.
    """

    name: str
    file: str
    anchor: str
    text: str
    before: bool
    line: bool
    scope: str = ""
    since: int = 0
    until: int = 1 << 31

    def wanted(self, tag: int) -> bool:
        """Whether the hook is meant for llama.cpp ``tag``."""
        return self.since <= tag <= self.until


@dataclass(frozen=True)
class Applied:
    """Outcome for one hook: ``applied`` is false when it is not meant for the tag."""

    name: str
    file: str
    applied: bool


def load_hooks(path: Path) -> list[Hook]:
    """Reads ``hooks.toml``.

    Raises:
        UserError: the file is missing, is no TOML, or an entry is malformed.
    """
    try:
        entries: list[dict[str, Any]] = tomlkit.parse(path.read_text("utf-8")).unwrap()["hook"]
        hooks = [_hook(entry) for entry in entries]
    except (OSError, TOMLKitError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"cannot use {path.name}", _reason(error), "reinstall srhpm-plugin"
        ) from None
    names = [hook.name for hook in hooks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"cannot use {path.name}", f"two hooks are called {name}", None)
    return hooks


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"an entry has no {error}"
    return str(error) or type(error).__name__


def _hook(entry: dict[str, Any]) -> Hook:
    name = str(entry["name"])
    places = [key for key in ("before", "after") if key in entry]
    if len(places) != 1:
        raise ValueError(f"hook {name} needs exactly one of before and after")
    ((kind, text),) = entry[places[0]].items()
    if kind not in ("line", "inline"):
        raise ValueError(f"hook {name} inserts neither a line nor inline text")
    if "\n" in text or "\n" in entry["anchor"]:
        raise ValueError(f"hook {name} spans lines")
    if not entry["anchor"].strip():
        raise ValueError(f"hook {name} has an empty anchor")
    file = PurePosixPath(entry["file"])
    if file.is_absolute() or ".." in file.parts:
        raise ValueError(f"hook {name} leaves the source tree")
    unknown = set(entry) - {"name", "file", "anchor", "scope", "since", "until", *places}
    if unknown:
        raise ValueError(f"hook {name} has unknown keys: {', '.join(sorted(unknown))}")
    return Hook(
        name=name,
        file=str(file),
        anchor=entry["anchor"],
        text=text,
        before=places[0] == "before",
        line=kind == "line",
        scope=entry.get("scope", ""),
        since=int(entry.get("since", 0)),
        until=int(entry.get("until", 1 << 31)),
    )


def apply_hooks(tree: Path, hooks: Sequence[Hook], tag: int) -> list[Applied]:
    """Applies the hooks meant for ``tag`` to the source ``tree``; running it again is no change.

    Nothing is written unless every hook finds its anchor.

    Raises:
        UserError: a file is missing or was changed by someone else, or an anchor is missing or
            ambiguous; the message names the hook.
    """
    wanted = [hook for hook in hooks if hook.wanted(tag)]
    state = _read_state(tree)
    patched = {
        file: patch(_pristine(tree, file, state), [h for h in wanted if h.file == file])
        for file in sorted({hook.file for hook in wanted})
    }
    # A file that no hook wants any more goes back to what it was.
    for file in sorted(set(state) - set(patched)):
        patched[file] = _pristine(tree, file, state)
    for file, text in patched.items():
        _keep_original(tree, file, state)
        # The state names the new content before the file has it, beside the old: a crash in
        # between leaves content that the next run knows as ours.
        state[file] = [*state.get(file, [])[-1:], _sha256(text)]
        _write(tree / _STATE, json.dumps(state, indent=1, sort_keys=True))
        if _read(tree / file) != text:
            _write(tree / file, text)
    return [Applied(hook.name, hook.file, hook.wanted(tag)) for hook in hooks]


def patch(text: str, hooks: Iterable[Hook]) -> str:
    """``text`` with all ``hooks`` inserted. Raises UserError like :func:`apply_hooks`."""
    inserts = sorted((_resolve(text, hook) for hook in hooks), key=lambda found: found[0])
    out: list[str] = []
    end = 0
    for position, insert in inserts:
        out += [text[end:position], insert]
        end = position
    return "".join([*out, text[end:]])


def _resolve(text: str, hook: Hook) -> tuple[int, str]:
    start, stop = 0, len(text)
    if hook.scope:
        start = _only(text, hook.scope, 0, len(text), hook, "scope")
        closing = text.find("\n}", start)
        stop = closing if closing >= 0 else len(text)
    at = _only(text, hook.anchor, start, stop, hook, "anchor")
    if not hook.line:
        return (at if hook.before else at + len(hook.anchor)), hook.text
    line_start = text.rfind("\n", 0, at) + 1
    line_end = text.find("\n", at)
    line_end = line_end + 1 if line_end >= 0 else len(text)
    indent = text[line_start:at][: len(text[line_start:at]) - len(text[line_start:at].lstrip())]
    own = f"{indent}{hook.text} // srhpm: {hook.name}\n"
    return (line_start, own) if hook.before else (line_end, own)


def _only(text: str, part: str, start: int, stop: int, hook: Hook, what: str) -> int:
    first = text.find(part, start, stop)
    if first < 0:
        raise UserError(
            f"hook {hook.name} does not apply",
            f"its {what} is missing in {hook.file}: {part!r}",
            "build from a supported llama.cpp tag (srhpm-plugin native build --help)",
        )
    if text.find(part, first + 1, stop) >= 0:
        raise UserError(
            f"hook {hook.name} does not apply",
            f"its {what} occurs more than once in {hook.file}: {part!r}",
            "build from a supported llama.cpp tag (srhpm-plugin native build --help)",
        )
    return first


def _pristine(tree: Path, file: str, state: dict[str, list[str]]) -> str:
    """The upstream text of ``file``: its kept original if we patched it, else the file itself."""
    original = tree / _ORIGINALS / file
    try:
        now = _read(tree / file)
    except OSError as error:
        raise UserError(
            f"cannot patch {file}",
            f"the source tree has no such file ({error.strerror})",
            "give a llama.cpp source tree with --source, or leave --source out",
        ) from None
    if file not in state or not original.is_file():
        return now
    pristine = _read(original)
    if now == pristine or _sha256(now) in state[file]:
        return pristine
    raise UserError(
        f"cannot patch {file}",
        "it was changed since the hooks were applied",
        "remove the work folder with `srhpm-plugin native build --clean`",
    )


def _keep_original(tree: Path, file: str, state: dict[str, list[str]]) -> None:
    original = tree / _ORIGINALS / file
    if file in state and original.is_file():
        return
    original.parent.mkdir(parents=True, exist_ok=True)
    _write(original, _read(tree / file))


def _read_state(tree: Path) -> dict[str, list[str]]:
    try:
        state = json.loads((tree / _STATE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(state, dict):
        return {}
    return {str(k): [str(x) for x in v] for k, v in state.items() if isinstance(v, list)}


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _read(path: Path) -> str:
    # newline="" keeps line ends as they are: the text must hash and compare as the file's bytes.
    with path.open(encoding="utf-8", errors="surrogateescape", newline="") as file:
        return file.read()


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".srhpm-partial")
    with partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        file.write(text)
    partial.replace(path)

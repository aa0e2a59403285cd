"""llama-swap's configuration: its models and the program each of their commands starts.

Facts (llama-swap 0bdb3720, ``internal/config``): ``models.<id>.cmd`` is a command line of one or
more lines, lines that begin with ``#`` are comments; ``${name}`` stands for a macro of the model's
``macros`` or of the top level's, ``${MODEL_ID}`` and ``${PORT}`` for what llama-swap fills in,
``${env.NAME}`` for a variable; aliases of YAML are allowed. Words are split as a shell does, on
Windows without backslash escapes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MOST_BYTES = 256 << 10
_MOST_NODES = 50_000  # with every alias written out
_DEEPEST = 40
_MACRO = re.compile(r"\$\{([a-zA-Z0-9_.-]+)\}")
_SERVER = re.compile(r"llama-server(?:[-_.].*)?", re.IGNORECASE)
# Comments and blank lines, then the first word, with the quotes it may have.
_FIRST = re.compile(r"(?:\s*#[^\n]*\n)*\s*")
_WORD = re.compile(r""""[^"]*"|'[^']*'|(?:\$\{[^}\s]*\}|[^\s"'])+""")


@dataclass(frozen=True)
class Site:
    """Where a program's word is written.

    Attributes:
        node: the scalar that holds it: a command's or a macro's.
        offset: of the word in the scalar's value.
        word: as written, quotes and macros included.
    """

    node: ScalarNode
    offset: int
    word: str


@dataclass(frozen=True)
class Entry:
    """A model whose command starts a ``llama-server``.

    Attributes:
        name: its id.
        node: its settings.
        site: where its program is written.
        program: the program, macros filled in.
        command: the command with the macro that holds the program's word, if one does, written
            out, so that it begins with that word; ``site.word`` is at ``at``.
        macros: those that hold for it.
        twin_of: for an entry of ours the id of its base.
    """

    name: str
    node: MappingNode
    site: Site
    program: str
    command: str
    at: int
    macros: Mapping[str, ScalarNode]
    twin_of: str | None

    def words(self) -> list[str]:
        """The command's words, what llama-swap fills in left as it is.

        Raises:
            ValueError: quotes in it do not match.
        """
        lines = [
            line.strip().removesuffix("\\")
            for line in fill(self.command, self.macros, self.name).split("\n")
            if not line.strip().startswith("#")
        ]
        return split("\n".join(lines))


def parse(text: str) -> MappingNode | None:
    """The configuration's tree; ``None`` for an empty file.

    Raises:
        ValueError: it is no YAML of a mapping, nested too deeply, or larger than it looks.
    """
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if node is None:
        return None
    if not isinstance(node, MappingNode):
        raise ValueError("it is no mapping")
    if _size(node, {}, 0) > _MOST_NODES:
        raise ValueError("its aliases stand for too much")
    return node


def _size(node: Node, known: dict[int, int], depth: int) -> int:
    if depth > _DEEPEST:
        raise ValueError("it is nested too deeply")
    if id(node) in known:
        return known[id(node)]
    known[id(node)] = _MOST_NODES + 1  # an alias to what it is in
    total = 1
    if isinstance(node, MappingNode):
        for key, value in node.value:
            total += _size(key, known, depth + 1) + _size(value, known, depth + 1)
    elif isinstance(node, SequenceNode):
        for value in node.value:
            total += _size(value, known, depth + 1)
    known[id(node)] = total
    return total


def pairs(node: Node | None) -> dict[str, Node]:
    """The keys and values of a mapping, merged ones (``<<``) included; empty of anything else."""
    found: dict[str, Node] = {}
    if not isinstance(node, MappingNode):
        return found
    merged: list[Node] = []
    for key, value in node.value:
        if key.value == "<<" and key.style is None:
            merged += value.value if isinstance(value, SequenceNode) else [value]
        elif isinstance(key, ScalarNode):
            found[key.value] = value
    for other in merged:
        for name, value in pairs(other).items():
            found.setdefault(name, value)
    return found


def entries(root: MappingNode | None) -> Iterator[Entry]:
    """The models whose command starts a ``llama-server``, in their order."""
    top = pairs(root)
    shared = _macros(top.get("macros"))
    for name, node in pairs(top.get("models")).items():
        settings = pairs(node)
        cmd = settings.get("cmd")
        if not isinstance(node, MappingNode) or not isinstance(cmd, ScalarNode):
            continue
        macros = {**shared, **_macros(settings.get("macros"))}
        found = _program(cmd, macros, name)
        if found is None:
            continue
        site, program, command, at = found
        if not _SERVER.fullmatch(re.split(r"[/\\]", program)[-1]):
            continue
        mark = pairs(pairs(settings.get("metadata")).get("srhpm")).get("twin_of")
        twin_of = mark.value if isinstance(mark, ScalarNode) else None
        yield Entry(name, node, site, program, command, at, macros, twin_of)


def _macros(node: Node | None) -> dict[str, ScalarNode]:
    return {k: v for k, v in pairs(node).items() if isinstance(v, ScalarNode)}


def _program(
    cmd: ScalarNode, macros: Mapping[str, ScalarNode], name: str
) -> tuple[Site, str, str, int] | None:
    """Where the program is written, the program, the command beginning with it, and where in it."""
    node, before, after = cmd, "", ""
    for _ in range(8):
        value: str = node.value
        start = _FIRST.match(value)
        offset = start.end() if start else 0
        word = _WORD.match(value, offset)
        if word is None:
            return None
        alone = _MACRO.fullmatch(word[0])
        if alone is None or alone[1] not in macros:
            program = fill(word[0], macros, name)
            if program[:1] in ("'", '"'):
                program = program[1:-1]
            at = len(before) + offset
            return Site(node, offset, word[0]), program, before + value + after, at
        before, after = before + value[:offset], value[word.end() :] + after
        node = macros[alone[1]]
    return None


def fill(text: str, macros: Mapping[str, ScalarNode], name: str) -> str:
    """``text`` with macros filled in; those that llama-swap makes up stay."""

    def value(found: re.Match[str]) -> str:
        key = found[1]
        if key in macros:
            return str(macros[key].value)
        if key == "MODEL_ID":
            return name
        if key.startswith("env."):
            return os.environ.get(key[4:], found[0])
        return found[0]

    for _ in range(8):
        filled = _MACRO.sub(value, text)
        if filled == text or len(filled) > MOST_BYTES:
            break
        text = filled
    return text


def split(command: str) -> list[str]:
    """The words of a command line.

    Raises:
        ValueError: quotes do not match.
    """
    lexer = shlex.shlex(command, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    if sys.platform == "win32":
        lexer.escape = ""
        lexer.quotes = '"'
    return list(lexer)


def quoted(path: Path) -> str:
    """``path`` as one word of a command."""
    if os.name == "nt":
        return f'"{path}"' if " " in str(path) else str(path)
    return shlex.quote(str(path))


def located(program: str) -> Path | None:
    """The program's file, if it is there. llama-swap looks on its own ``PATH``, we on ours."""
    try:
        found = shutil.which(program)
        return Path(found).absolute() if found else None
    except (OSError, ValueError):
        return None


def load(text: str) -> Any:
    """The configuration's data with what is needed to write it again as it was written.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        return YAML(typ="rt", pure=True).load(text)
    except YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


def with_program(entry: Entry, word: str) -> Entry:
    """The entry with another word for its program in its command."""
    end = entry.at + len(entry.site.word)
    return replace(entry, command=entry.command[: entry.at] + word + entry.command[end:])

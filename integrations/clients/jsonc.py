"""JSON with comments and trailing commas, as editors keep their settings: where things stand in the
text, so that an edit leaves all else as it is, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_SPACE = re.compile(r"(?:[\s\ufeff]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"[-+.\w]+")
_DEEPEST = 100


@dataclass(frozen=True)
class Node:
    """A value.

    Attributes:
        start, end: its place in the text.
        value: what it says; of objects and lists what their members say.
        members: of an object.
        items: of a list.
    """

    start: int
    end: int
    value: Any
    members: Mapping[str, Node] | None = None
    items: Sequence[Node] | None = None

    @property
    def children(self) -> Sequence[Node]:
        """The members' or items' values, as they stand."""
        return tuple(self.members.values()) if self.members is not None else self.items or ()


def parse(text: str) -> Node:
    """The whole text.

    Raises:
        ValueError: it is no JSON with comments, in words.
    """
    reader = _Reader(text)
    node = reader.value(reader.space(0), 0)
    if reader.space(node.end) != len(text):
        raise ValueError(f"something follows its end at line {_line(text, node.end)}")
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def space(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        return found.end()

    def value(self, at: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise ValueError("it is nested too deep")
        opening = self._text[at : at + 1]
        if opening == "{":
            return self._object(at, depth)
        if opening == "[":
            return self._list(at, depth)
        found = (_STRING if opening == '"' else _WORD).match(self._text, at)
        if found is None:
            raise ValueError(f"there is no value at line {_line(self._text, at)}")
        try:
            return Node(at, found.end(), json.loads(found[0]))
        except ValueError:
            raise ValueError(f"there is no value at line {_line(self._text, at)}") from None

    def _object(self, start: int, depth: int) -> Node:
        members: dict[str, Node] = {}
        at = self.space(start + 1)
        while self._text[at : at + 1] != "}":
            key = self.value(at, depth + 1)
            at = self.space(key.end)
            if not isinstance(key.value, str) or self._text[at : at + 1] != ":":
                raise ValueError(f"there is no name and colon at line {_line(self._text, at)}")
            if key.value in members:
                raise ValueError(f"{key.value!r} stands twice in it")
            members[key.value] = self.value(self.space(at + 1), depth + 1)
            at = self._next(members[key.value].end, "}")
        value = {name: node.value for name, node in members.items()}
        return Node(start, at + 1, value, members=members)

    def _list(self, start: int, depth: int) -> Node:
        items: list[Node] = []
        at = self.space(start + 1)
        while self._text[at : at + 1] != "]":
            items.append(self.value(at, depth + 1))
            at = self._next(items[-1].end, "]")
        return Node(start, at + 1, [node.value for node in items], items=items)

    def _next(self, at: int, closing: str) -> int:
        at = self.space(at)
        sign = self._text[at : at + 1]
        if sign == ",":
            return self.space(at + 1)
        if sign != closing:
            raise ValueError(f"a comma or {closing} is missing at line {_line(self._text, at)}")
        return at


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def first_in(text: str, node: Node, entry: str) -> str:
    """``text`` with an entry more, the first of an object or list, on a line of its own."""
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = _indent(text, node.start)
    inner = indent + ("\t" if indent.startswith("\t") else "  ")
    if node.children and "\n" in text[node.start : node.children[0].start]:
        inner = _indent(text, node.children[0].start)
    after = text[node.start + 1 :]
    if (
        not node.children
        and _SPACE.fullmatch(text[node.start + 1 : node.end - 1].strip()) is not None
    ):
        after = (newline + indent if "\n" not in after[: node.end - node.start - 2] else "") + after
    elif not after.lstrip(" \t").startswith(("\n", "\r")):
        after = newline + inner + after.lstrip(" \t")
    return text[: node.start + 1] + newline + inner + entry + after


def _indent(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    found = re.match(r"[ \t]*", text[begin:at])
    return found[0] if found else ""

"""Changes to the text of a configuration: all that is not ours stays as it is, byte for byte.

The tree says where to write; nothing is written by a YAML library but our own entries. Afterwards
the text is read again and must say what it said before, with our changes and no other.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode
from ruamel.yaml.scalarbool import ScalarBoolean
from ruamel.yaml.scalarfloat import ScalarFloat
from ruamel.yaml.scalarint import ScalarInt
from ruamel.yaml.scalarstring import LiteralScalarString, ScalarString

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.untrusted import read_bytes

from . import config
from .config import Entry, Site

HOST = "llama-swap"
SUFFIX = "-srhpm"
_BEGIN = "# srhpm: begin, our entries (`srhpm-plugin uninstall --host llama-swap` takes them out)"
_END = "# srhpm: end"
_BLOCK = re.compile(r"^[ \t]*# srhpm: begin\b[^\n]*\n(?:(?![ \t]*# srhpm:)[^\n]*\n)*?"
                    r"[ \t]*# srhpm: end[ \t]*\r?(?:\n|\Z)", re.MULTILINE)  # fmt: skip


def with_twins(text: str, word_of: Mapping[str, str]) -> str:
    """``text`` with a twin behind the models for each of the bases.

    Args:
        word_of: for each id of a base the word that starts the drop-in.

    Raises:
        ValueError: it cannot be done, in words.
    """
    root = config.parse(text)
    data = config.load(text)
    models = config.pairs(root).get("models")
    if not isinstance(models, MappingNode) or models.flow_style or not models.value:
        raise ValueError("its models are not written one below the other")
    bases = {e.name: e for e in config.entries(root)}
    twins = CommentedMap()
    for name, word in word_of.items():
        twin = name + SUFFIX
        if twin in data["models"]:
            raise ValueError(f"it has a model {twin!r} already")
        twins[twin] = _twin(config.with_program(bases[name], word), data["models"][name])
    first = models.value[0][0].start_mark
    newline = "\r\n" if "\r\n" in text else "\n"
    indent = " " * first.column
    lines = [_BEGIN, *_dumped(twins).splitlines(), _END]
    block = "".join(f"{indent}{line}".rstrip() + newline for line in lines)
    end = _last(models).end_mark.index
    if end and text[end - 1] != "\n":
        end = text.find("\n", end) + 1 or len(text)
    before, after = text[:end], text[end:]
    if before and not before.endswith("\n"):
        block = newline + block.removesuffix(newline)
    edited = before + block + after
    # The end of the last line may be part of what it says.
    expected = config.load(text if text.endswith("\n") else text + newline)
    expected["models"].update(twins)
    _check(edited, expected)
    return edited


def with_words(text: str, words: Sequence[tuple[Site, str]]) -> str:
    """``text`` with other words for programs where they are written.

    Raises:
        ValueError: it cannot be done, in words.
    """
    unique = {site.node.start_mark.index: (site, word) for site, word in words}
    for _, (site, word) in sorted(unique.items(), reverse=True):
        text = _replaced(text, site, word)
    return text


def without_us(text: str) -> str | None:
    """``text`` less our entries, our programs replaced by those they stand in for; ``None`` when
    something of ours cannot be told from the user's."""
    text = _BLOCK.sub("", text)
    if "# srhpm: " in text:
        return None
    words = []
    for entry in config.entries(config.parse(text)):
        note = note_of(entry.program)
        if entry.twin_of is not None:
            return None
        if note is not None:
            words.append((entry.site, note.facts.get("word") or str(note.original or "")))
    return with_words(text, words) if words else text


def note_of(program: str) -> Note | None:
    """The note of our drop-in, if ``program`` is one for this host."""
    if not Path(program).is_absolute():
        return None
    try:
        note = Note.parse(read_bytes(Note.path_for(Path(program)), 65536))
    except (OSError, ValueError):
        return None
    return note if note.host == HOST else None


def _twin(entry: Entry, base: Any) -> CommentedMap:
    """A base's settings again, without what only one model can have."""
    twin: CommentedMap = _copied(base)
    twin.pop("aliases", None)
    # A twin has another id, files keep their names.
    command = entry.command.replace("${MODEL_ID}", entry.name)
    twin["cmd"] = LiteralScalarString(command) if "\n" in command else command
    if isinstance(twin.get("name"), str):
        twin["name"] = f"{twin['name']} (SR-HPM)"
    filters = twin.get("filters")
    by_id = filters.get("setParamsByID") if isinstance(filters, dict) else None
    if isinstance(by_id, dict):  # its keys become aliases
        for key in [k for k in by_id if "${MODEL_ID}" not in str(k)]:
            del by_id[key]
    metadata = twin.get("metadata")
    twin["metadata"] = metadata if isinstance(metadata, dict) else CommentedMap()
    twin["metadata"]["srhpm"] = CommentedMap(twin_of=entry.name)
    return twin


def _copied(value: Any) -> Any:
    """Data without comments and anchors, merged keys written out."""
    if isinstance(value, dict):
        copy = CommentedMap((_copied(k), _copied(v)) for k, v in value.items())
        if isinstance(value, CommentedMap) and value.fa.flow_style():
            copy.fa.set_flow_style()
        return copy
    if isinstance(value, list):
        return [_copied(v) for v in value]
    if isinstance(value, ScalarString):
        return type(value)(str(value))
    for kind, plain in ((ScalarBoolean, bool), (ScalarInt, int), (ScalarFloat, float)):
        if isinstance(value, kind):
            return plain(value)
    return value


def _dumped(data: Any) -> str:
    yaml = YAML(typ="rt", pure=True)
    yaml.width = 1 << 30
    yaml.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    yaml.dump(data, stream)
    return stream.getvalue()


def _last(node: Node) -> Node:
    """What ends a block mapping: the mark of the mapping itself is behind the comments after it."""
    while isinstance(node, (MappingNode, SequenceNode)) and node.value and not node.flow_style:
        last = node.value[-1]
        inner = last[1] if isinstance(last, tuple) else last
        if inner.start_mark.index < node.start_mark.index:  # an alias to somewhere before
            return last[0] if isinstance(last, tuple) else node
        node = inner
    return node


def _replaced(text: str, site: Site, word: str) -> str:
    """``text`` with a scalar that says ``word`` where it said the site's."""
    node = site.node
    start, end = node.start_mark.index, node.end_mark.index
    behind = node.value[site.offset + len(site.word) :]
    wanted: str = node.value[: site.offset] + word + behind
    if node.style is None and word[:1] in ("'", '"'):
        # A plain scalar cannot begin with a quote.
        return text[:start] + "'" + wanted.replace("'", "''") + "'" + text[end:]
    written = _escape(node.style)
    old, new = written(site.word), written(word)
    at = text.find(old, start, end)
    while at >= 0:  # the first may be in a comment
        edited = text[:at] + new + text[at + len(old) :]
        if _value_at(config.parse(edited), start) == wanted:
            return edited
        at = text.find(old, at + 1, end)
    raise ValueError(f"{site.word} is not written there in one piece")


def _value_at(node: Node | None, start: int) -> str | None:
    """The scalar that begins at a place in the text."""
    pending, seen = [node], set()
    while pending:
        node = pending.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            pending += [n for pair in node.value for n in pair]
        elif isinstance(node, SequenceNode):
            pending += node.value
        elif node.start_mark.index == start:
            return str(node.value)
    return None


def _escape(style: str | None) -> Callable[[str], str]:
    if style == '"':
        return lambda s: s.replace("\\", "\\\\").replace('"', '\\"')
    if style == "'":
        return lambda s: s.replace("'", "''")
    return lambda s: s


def _check(text: str, expected: Any) -> None:
    if config.load(text) != expected:
        raise ValueError("it cannot be written to without changing what it says")

"""Preset files of llama-server's router, changed in our places only.

Facts (llama.cpp b11434, ``common/preset.cpp``): ``[name]`` begins the settings of a model, ``[*]``
those of all; a section that comes again takes the place of the first; ``key = value`` where the
key is a flag without its dashes or the flag's variable; ``;`` and ``#`` begin comments. A name's
part behind the last ``:`` is its quantization, of which only what follows the last ``-`` or ``.``
is kept, so our mark must come before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

MARK = "-srhpm"
_BEGIN = "; srhpm: begin, our sections (`srhpm-plugin uninstall --host {host}` takes them out)"
_END = "; srhpm: end"
_BLOCK = re.compile(
    r"^; srhpm: begin\b[^\n]*\n(?:(?!; srhpm:)[^\n]*\n)*?; srhpm: end[ \t]*\r?(?:\n|\Z)",
    re.MULTILINE,
)
_HEADER = re.compile(r"[ \t]*\[[ \t]*([^\]\r\n]+?)[ \t]*\][ \t]*(?:[;#].*)?")
_SETTING = re.compile(r"[ \t]*([a-zA-Z_][a-zA-Z0-9_.-]*)[ \t]*=[ \t]*(.*?)(?:[ \t]*[;#].*)?[ \t]*")
MODEL = ("m", "model", "LLAMA_ARG_MODEL")
# What only one model of a router may have, or what would load both when it starts.
_ONCE = frozenset(("a", "alias", "LLAMA_ARG_ALIAS", "load-on-startup"))


@dataclass(frozen=True)
class Section:
    """The settings of one model.

    Attributes:
        settings: by key as written, the last of several.
        lines: as written, without comments and blank lines.
    """

    name: str
    settings: dict[str, str]
    lines: tuple[str, ...]

    def get(self, *keys: str) -> str | None:
        """The value under the first of several names of a setting."""
        return next((self.settings[k] for k in keys if k in self.settings), None)


def sections(text: str) -> dict[str, Section]:
    """The sections by name; lines that are none of a preset's are passed over."""
    found: dict[str, Section] = {}
    current: Section | None = None
    for line in text.splitlines():
        header = _HEADER.fullmatch(line)
        setting = _SETTING.fullmatch(line)
        if header:
            current = found[header[1]] = Section(header[1], {}, ())
        elif setting and current is not None:
            current.settings[setting[1]] = setting[2]
            current = Section(current.name, current.settings, (*current.lines, line.strip()))
            found[current.name] = current
    return found


def twin_name(name: str) -> str:
    """What the twin of a model is called."""
    base, colon, tag = name.rpartition(":")
    return f"{base}{MARK}:{tag}" if colon else name + MARK


def is_twin(name: str) -> bool:
    """Whether a model of this name is a twin."""
    base, colon, _ = name.rpartition(":")
    return (base if colon else name).endswith(MARK)


def with_twins(text: str, bases: Iterable[Section], host: str) -> str:
    """``text`` with a twin of each of the sections behind it.

    Raises:
        ValueError: there is a section of that name already.
    """
    known = sections(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [_BEGIN.format(host=host)]
    for base in bases:
        twin = twin_name(base.name)
        if twin in known:
            raise ValueError(f"it has a section [{twin}] already")
        lines += [f"[{twin}]", *(line for line in base.lines if _key(line) not in _ONCE), ""]
    lines[-1] = _END
    start = newline if text and not text.endswith("\n") else ""
    return text + start + "".join(line + newline for line in lines)


def without_us(text: str) -> str | None:
    """``text`` less our sections; ``None`` when they cannot be told from the user's."""
    text = _BLOCK.sub("", text)
    return None if "; srhpm:" in text else text


def ours(text: str) -> bool:
    """Whether sections of ours are in it."""
    return _BLOCK.search(text) is not None


def _key(line: str) -> str:
    return line.partition("=")[0].strip()

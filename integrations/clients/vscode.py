"""VS Code: an entry in ``chatLanguageModels.json``, the file of the models that users bring along.

Entries of the vendor ``ollama`` have a name and a URL, and their models are found by VS Code (as
Ollama's own ``cmd/launch/vscode.go`` writes it). Ours is told by its name: VS Code writes the
file itself when somebody uses its dialogues, and comments would not be safe.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from . import jsonc

FILE = "chatLanguageModels.json"
NAME = "SR-HPM"


def folder() -> Path:
    """Where its user's settings lie."""
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA") or Path.home())
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "Code" / "User"


def edited(text: str, url: str) -> str:
    """``text`` with our entry.

    Raises:
        ValueError: it cannot be done, in words.
    """
    text = text if text.strip() else "[]\n"
    root = jsonc.parse(text)
    if root.items is None:
        raise ValueError("it is no list")
    if _ours(root):
        raise ValueError(f"it has an entry {NAME!r} already")
    entry = {"name": NAME, "vendor": "ollama", "url": url}
    comma = "," if root.items else ""
    new = jsonc.first_in(text, root, json.dumps(entry) + comma)
    if jsonc.parse(new).value != [entry, *root.value]:
        raise ValueError("our edit would change other entries")
    return new


def without_us(text: str) -> str:
    """``text`` less our entry.

    Raises:
        ValueError: it is no list.
    """
    root = jsonc.parse(text)
    ours = _ours(root)
    if ours is None:
        return text
    end = ours.end
    rest = text[end:].lstrip()
    if rest.startswith(","):
        end = text.index(",", end) + 1
    begin = text.rfind("\n", 0, ours.start)
    begin = begin if begin >= 0 and not text[begin : ours.start].strip() else ours.start
    return text[:begin].removesuffix("\r") + text[end:]


def is_set(text: str, url: str) -> bool:
    """Whether our entry is there."""
    try:
        ours = _ours(jsonc.parse(text))
    except ValueError:
        return False
    return ours is not None and ours.value.get("url") == url


def _ours(root: jsonc.Node) -> jsonc.Node | None:
    for node in root.items or ():
        if isinstance(node.value, dict) and node.value.get("name") == NAME:
            return node
    return None

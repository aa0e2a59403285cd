"""Zed: ``language_models.ollama.api_url`` in ``settings.json``.

Zed finds an Ollama's models by itself and asks ``http://localhost:11434`` when nothing is set
(zed.dev/docs/ai/use-a-local-model). Its settings may have comments; they mark what is ours.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

from . import jsonc

FILE = "settings.json"
_BEGIN, _END = "/* srhpm: begin */", "/* srhpm: end */"
_OURS = re.compile(r"(\r?\n)?[ \t]*/\* srhpm: begin \*/[^\n]*?/\* srhpm: end \*/")
_WAS = re.compile(r'"(?:[^"\\]|\\.)*" /\* srhpm: it was ("(?:[^"\\]|\\.)*") \*/')


def folder() -> Path:
    """Where its settings lie."""
    if sys.platform == "win32":
        found = Path(os.environ.get("APPDATA") or Path.home()) / "Zed"
    elif sys.platform == "darwin":
        found = Path.home() / ".config" / "zed"
    else:
        named = os.environ.get("FLATPAK_XDG_CONFIG_HOME") or os.environ.get("XDG_CONFIG_HOME")
        found = (Path(named) if named else Path.home() / ".config") / "zed"
    return found


def edited(text: str, url: str) -> str:
    """``text`` with our address.

    Raises:
        ValueError: it cannot be done, in words.
    """
    text = text if text.strip() else "{}\n"
    node = root = jsonc.parse(text)
    if root.members is None:
        raise ValueError("its settings are no object")
    for name in ("language_models", "ollama"):
        inner = (node.members or {}).get(name)
        if inner is None:
            rest = ("language_models", "ollama", "api_url")
            missing = rest[rest.index(name) :]
            new = _insert(text, node, missing, url)
            return _checked(new, _with(root.value, url))
        if inner.members is None:
            raise ValueError(f"{name} in it is no object")
        node = inner
    there = (node.members or {}).get("api_url")
    if there is None:
        return _checked(_insert(text, node, ("api_url",), url), _with(root.value, url))
    was = text[there.start : there.end]
    if "*/" in was:
        raise ValueError("its api_url cannot be kept in a comment")
    new = f"{json.dumps(url)} /* srhpm: it was {was} */"
    text = text[: there.start] + new + text[there.end :]
    return _checked(text, _with(root.value, url))


def without_us(text: str) -> str:
    """``text`` less what is ours; an address that we took the place of comes back."""
    return _WAS.sub(r"\1", _OURS.sub("", text))


def is_set(text: str, url: str) -> bool:
    """Whether it names our address, or none where Zed's own choice is ours."""
    try:
        value = jsonc.parse(text).value
        said = value["language_models"]["ollama"]["api_url"]
    except (ValueError, KeyError, TypeError):
        return False
    return bool(said == url)


def _insert(text: str, node: jsonc.Node, names: tuple[str, ...], url: str) -> str:
    said = json.dumps(url)
    for name in reversed(names[1:]):
        said = f"{{ {json.dumps(name)}: {said} }}"
    comma = "," if node.members else ""
    return jsonc.first_in(text, node, f"{_BEGIN} {json.dumps(names[0])}: {said}{comma} {_END}")


def _with(value: dict[str, object], url: str) -> dict[str, object]:
    models = value.get("language_models")
    models = dict(models) if isinstance(models, dict) else {}
    ollama = models.get("ollama")
    models["ollama"] = {**(ollama if isinstance(ollama, dict) else {}), "api_url": url}
    return {**value, "language_models": models}


def _checked(text: str, expected: object) -> str:
    if jsonc.parse(text).value != expected:
        raise ValueError("our edit would change other settings")
    return text

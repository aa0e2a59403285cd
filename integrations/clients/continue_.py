"""Continue: a model in ``~/.continue/config.yaml``.

With provider ``ollama`` and model ``AUTODETECT`` it lists what the server has
(docs.continue.dev, "Ollama"). Two comments stand around what is ours.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

FILE = "config.yaml"
NAME = "SR-HPM"
_BEGIN = "# srhpm: begin (`srhpm-plugin uninstall --host continue` takes this out)"
_END = "# srhpm: end"
_OURS = re.compile(
    r"^[ \t]*# srhpm: begin\b[^\n]*\n(?:(?![ \t]*# srhpm:)[^\n]*\n)*?[ \t]*# srhpm: end[ \t]*\r?"
    r"(?:\n|\Z)",
    re.MULTILINE,
)
_NEW = "name: Local Config\nversion: 1.0.0\nschema: v1\n"


def folder() -> Path:
    """Where its configuration lies; ``CONTINUE_GLOBAL_DIR`` names another one."""
    named = os.environ.get("CONTINUE_GLOBAL_DIR")
    return Path(named).absolute() if named else Path.home() / ".continue"


def edited(text: str, url: str) -> str:
    """``text`` with our model.

    Raises:
        ValueError: it cannot be done, in words.
    """
    text = text if text.strip() else _NEW
    newline = "\r\n" if "\r\n" in text else "\n"
    before = _load(text)
    if not isinstance(before, dict):
        raise ValueError("it is no mapping")
    models = before.get("models")
    node = _models(text)
    entry = {"name": NAME, "provider": "ollama", "model": "AUTODETECT", "apiBase": url}
    lines = [f"{'- ' if not i else '  '}{k}: {v}" for i, (k, v) in enumerate(entry.items())]
    if models and isinstance(node, SequenceNode) and not node.flow_style:
        at = node.start_mark.index
        begin = text.rfind("\n", 0, at) + 1
        indent = text[begin:at]
        if indent.strip():
            raise ValueError("its models are not written one below the other")
        block = "".join(f"{indent}{line}{newline}" for line in (_BEGIN, *lines, _END))
        new = text[:begin] + block + text[begin:]
    elif "models" not in before:
        block = "".join(f"{line}{newline}" for line in (_BEGIN, "models:", *_in(lines), _END))
        new = text + ("" if text.endswith("\n") else newline) + block
    else:
        raise ValueError("its models are not written one below the other")
    if _load(new) != {**before, "models": [entry, *(models or [])]}:
        raise ValueError("our edit would change other settings")
    return new


def without_us(text: str) -> str:
    """``text`` less what is ours."""
    return _OURS.sub("", text)


def is_set(text: str, url: str) -> bool:
    """Whether our model is there."""
    try:
        models = _load(text).get("models")
    except (ValueError, AttributeError):
        return False
    return any(
        isinstance(m, dict) and m.get("name") == NAME and m.get("apiBase") == url
        for m in models or ()
    )


def _in(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def _load(text: str) -> Any:
    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, RecursionError) as error:
        words = " ".join(str(error).split())
        raise ValueError(f"it is no YAML: {words[:200]}") from None


def _models(text: str) -> Node | None:
    root = YAML(pure=True).compose(text)
    if not isinstance(root, MappingNode):
        return None
    return next((value for key, value in root.value if key.value == "models"), None)

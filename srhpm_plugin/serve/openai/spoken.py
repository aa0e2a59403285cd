"""What ``llama-server`` says in an answer, found and changed without taking the answer apart.

An answer's texts are JSON strings, in which every quote is escaped: ``"model":"`` with bare quotes
is always a field. Only the input of a tool in a whole answer of Anthropic's is an object of the
model's own making; there the outermost field is meant.
"""

from __future__ import annotations

import json
import re
from typing import Any

_MODEL = re.compile(rb'("model": ?)"(?:[^"\\]|\\.)*"')
_TIMINGS = re.compile(rb'"timings": ?(?={)')
_TOKENS = re.compile(rb'"(?:completion|output)_tokens": ?(\d+)')
_MESSAGE = re.compile(rb'"type": ?"message", ?"role": ?"assistant"')


def renamed(events: bytes, name: str) -> bytes:
    """Events that call the model ``name``."""
    said = json.dumps(name, ensure_ascii=False).encode("utf-8", "replace")
    return _MODEL.sub(lambda found: found[1] + said, events)


def renamed_whole(answer: bytes, name: str) -> bytes:
    """A whole answer that calls the model ``name``."""
    if _MESSAGE.search(answer) is None:
        return renamed(answer, name)
    try:
        content = json.loads(answer)
    except ValueError:
        return answer
    if isinstance(content, dict) and "model" in content:
        content["model"] = name
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def timings(piece: bytes) -> dict[str, Any] | None:
    """The ``timings`` object in an answer or in the last of its events."""
    starts = [found.end() for found in _TIMINGS.finditer(piece)]
    if not starts:
        return None
    text = piece[starts[-1] :].decode("utf-8", "replace")
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def tokens(piece: bytes) -> int | None:
    """How many tokens the answer has, as ``usage`` says."""
    found = _TOKENS.findall(piece)
    return int(found[-1]) if found else None

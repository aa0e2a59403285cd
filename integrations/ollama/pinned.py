"""The llama.cpp tag that a version of Ollama is built from.

Ollama's server cannot tell: it is built from a shallow clone, so it calls itself build 1 and names
only the commit. The tag stands in a file of Ollama's sources, which is fetched; nothing else is.
"""

from __future__ import annotations

import re

import httpx

URL = "https://raw.githubusercontent.com/ollama/ollama/v{version}/LLAMA_CPP_VERSION"
_VERSION = re.compile(r"[0-9]+(\.[0-9]+){1,3}(-rc[0-9]+)?")
_TAG = re.compile(r"b[1-9][0-9]{3,5}")
_SECONDS = 15.0


def tag(version: str) -> str | None:
    """E.g. ``b10488`` for ``0.32.15``; ``None``: a version of nobody's, no network, or no tag."""
    if not _VERSION.fullmatch(version):
        return None
    try:
        answer = httpx.get(URL.format(version=version), timeout=_SECONDS)
    except httpx.HTTPError:
        return None
    found = answer.text.strip() if answer.status_code == httpx.codes.OK else ""
    return found if _TAG.fullmatch(found) else None

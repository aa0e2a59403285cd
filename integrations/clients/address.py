"""Where ``srhpm-plugin serve`` is to be asked, and whether it answers there."""

from __future__ import annotations

import os

import httpx

from srhpm_plugin.launch.ports import base_url
from srhpm_plugin.serve.settings import PORT, from_environment

_SECONDS = 2.0
_SERVER = "srhpm-plugin"  # what `serve` calls itself in its answers
_ANYWHERE = ("0.0.0.0", "::", "")


def url() -> str:
    """The address that ``serve`` has when it is started without options."""
    settings = from_environment(os.environ)
    host = "127.0.0.1" if settings.host in _ANYWHERE else settings.host
    return base_url(host, settings.port)


def is_usual(address: str) -> bool:
    """Whether clients that look for an Ollama look there."""
    return address == f"http://127.0.0.1:{PORT}"


def trouble(address: str) -> str | None:
    """Why clients would find nothing of ours there, with what to do; ``None``: it answers."""
    try:
        answer = httpx.get(f"{address}/api/version", timeout=_SECONDS, trust_env=False)
    except httpx.HTTPError:
        return f"nothing answers at {address} yet: type srhpm-plugin serve"
    if answer.headers.get("server") != _SERVER:
        return (
            f"at {address} another program answers: stop it, or put us in front of it (see "
            "`srhpm-plugin serve --front`), or set OLLAMA_HOST to another address for both"
        )
    return None

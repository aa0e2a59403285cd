"""Ollama's own API, as far as an installation needs it: is it there, and at which address."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

_PORT = 11434
_SECONDS = 2.0


def address(environment: Mapping[str, str]) -> str | None:
    """The base URL that ``OLLAMA_HOST`` means to a client on this machine (``envconfig.Host``);
    ``None`` where it names another machine or nothing that can be asked."""
    said = environment.get("OLLAMA_HOST", "").strip().strip("\"'")
    if "://" in said:
        default = {"http": 80, "https": 443}.get(said.partition("://")[0].lower(), _PORT)
    else:
        said, default = f"http://{said or '127.0.0.1'}", _PORT
    if said == "http://":
        said = "http://127.0.0.1"
    try:
        parts = urlsplit(said)
        host, port = parts.hostname or "127.0.0.1", parts.port or default
    except ValueError:
        return None
    if host != "localhost":
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            return None
        if ip.is_unspecified:  # where it listens, not where it is asked
            host = "127.0.0.1" if ip.version == 4 else "::1"
        elif not ip.is_loopback:
            return None
    if parts.scheme != "http":
        return None
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_running(base: str) -> bool:
    """Whether an Ollama answers there."""
    try:
        with httpx.Client(trust_env=False, timeout=_SECONDS) as client:
            answer = client.get(f"{base}/api/version")
        return answer.status_code == 200 and isinstance(answer.json().get("version"), str)
    except (httpx.HTTPError, ValueError, AttributeError):
        return False

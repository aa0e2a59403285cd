"""What the embedded host was told: by flags, else by Ollama's variables, else by default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..errors import UserError
from .durations import seconds

PORT = 11434
"""Ollama's: clients look there."""

_MOST_QUEUED = 512  # Ollama's OLLAMA_MAX_QUEUE


@dataclass(frozen=True)
class Settings:
    """All that can be set.

    Attributes:
        host: address to listen on.
        port: to listen on; another one is taken when it is in use and was not asked for.
        port_asked: the port was named by the user, so no other will do.
        api_key: what clients must send; always set when not on loopback.
        origins: web pages that may use the API besides those of this machine, as
            ``OLLAMA_ORIGINS`` has them: ``scheme://host[:port]`` with ``*`` for any part.
        ctx: context per slot where neither request nor store says one, tokens; ``None``: the
            plan's.
        keep_alive: seconds a model stays loaded after its last use; negative: for ever.
        parallel: slots per model.
        max_queue: requests that may wait for a slot or for memory, over all models.
        max_loaded: models loaded at once; 0: as many as fit into memory.
        draft: drafter for every model: ``auto``, ``none`` or ``ngram``.
        backend: plugin that runs the plans.
        front: URL of another host that gets what is not ours.
        body_limit: bytes that a request may have (uploads of blobs are not counted).
        load_timeout: seconds after which a load that makes no progress is given up.
    """

    host: str = "127.0.0.1"
    port: int = PORT
    port_asked: bool = False
    api_key: str | None = None
    origins: tuple[str, ...] = ()
    ctx: int | None = None
    keep_alive: float = 300.0
    parallel: int = 1
    max_queue: int = _MOST_QUEUED
    max_loaded: int = 0
    draft: str = "auto"
    backend: str = "srhpm"
    front: str | None = None
    body_limit: int = 128 << 20
    load_timeout: float = 1800.0


def from_environment(env: Mapping[str, str], **flags: Any) -> Settings:
    """Settings from Ollama's variables, overridden by flags that are not ``None``.

    Raises:
        UserError: a variable or flag says nothing that can be used.
    """
    found: dict[str, Any] = {}
    address = env.get("OLLAMA_HOST", "").strip().strip("\"'")
    if address:
        found["host"], found["port"] = _address(address)
        found["port_asked"] = True
    for variable, name, least in (
        ("OLLAMA_CONTEXT_LENGTH", "ctx", 1),
        ("OLLAMA_NUM_PARALLEL", "parallel", 1),
        ("OLLAMA_MAX_QUEUE", "max_queue", 1),
        ("OLLAMA_MAX_LOADED_MODELS", "max_loaded", 1),
    ):
        number = _number(env, variable, least)
        if number is not None:
            found[name] = number
    if text := env.get("OLLAMA_KEEP_ALIVE", "").strip():
        found["keep_alive"] = _duration("OLLAMA_KEEP_ALIVE", text)
    if text := env.get("OLLAMA_ORIGINS", "").strip():
        found["origins"] = tuple(o.strip() for o in text.split(",") if o.strip())
    said = {name: value for name, value in flags.items() if value is not None}
    if "port" in said:
        said["port_asked"] = True
    if isinstance(said.get("keep_alive"), str):
        said["keep_alive"] = _duration("--keep-alive", said["keep_alive"])
    return Settings(**(found | said))


def _duration(name: str, text: str) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        do = "try 5m, or -1 for ever"
        raise UserError(f"cannot use {name}={text}", str(error), do) from error


def _number(env: Mapping[str, str], variable: str, least: int) -> int | None:
    """The value of a variable; Ollama's own default, 0, is as if it were not set."""
    text = env.get(variable, "").strip().strip("\"'")
    if not text or text == "0":
        return None
    if not text.isdecimal() or not least <= int(text) < 1 << 31:
        raise UserError(f"cannot use {variable}={text}", "not a number", f"unset {variable}")
    return int(text)


def _address(text: str) -> tuple[str, int]:
    """Host and port as Ollama reads them (its ``envconfig/config.go``): no scheme means port
    11434, ``http`` 80, ``https`` 443; host or port may be left out."""
    scheme, separator, rest = text.partition("://")
    default = {"http": 80, "https": 443}.get(scheme, PORT) if separator else PORT
    if not separator:
        rest = text
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # a bare IPv6 address
    try:
        parts = urlsplit(f"//{rest}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UserError(
            f"cannot use OLLAMA_HOST={text}", "no address", "write it as 127.0.0.1:11434"
        ) from None
    return host or "127.0.0.1", default if port is None else port

"""Which web pages may use the API, and which names the server answers to."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from functools import cache

# As Ollama has them (its ``envconfig/config.go``, ``AllowedOrigins``): pages of this machine, and
# desktop applications that are web pages inside.
_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
_APPS = ("app", "file", "tauri", "vscode-webview", "vscode-file")
# No name below these can be bought, so none can be made to lead here.
_UNOWNED = ("localhost", "local", "internal")


class Origins:
    """The pages allowed.

    Args:
        more: besides those of this machine; ``*`` stands for any part of a host or port, alone
            for all pages.
    """

    def __init__(self, more: Iterable[str] = ()) -> None:
        allowed = [*more, *(f"{app}://*" for app in _APPS)]
        for host in _LOCAL:
            for scheme in ("http", "https"):
                allowed += [f"{scheme}://{host}", f"{scheme}://{host}:*"]
        self._all = "*" in allowed
        self._pattern = re.compile("|".join(map(_pattern, allowed)), re.IGNORECASE)

    def allow(self, origin: str) -> bool:
        """Whether the page may; ``null``, which any page can arrange to be, only where all may."""
        return self._all or bool(self._pattern.fullmatch(origin))


def _pattern(allowed: str) -> str:
    escaped = re.escape(allowed.rstrip("/"))
    return escaped.replace(r":\*", ":[0-9]+").replace(r"\*", "[^/:]*")


def own_name(host: str) -> bool:
    """Whether a ``Host`` header can only mean this machine or its network, so that no page of a
    stranger's sent it (DNS rebinding: a stranger's name that leads to 127.0.0.1)."""
    name = _without_port(host).rstrip(".").casefold()
    if not name:
        return True
    try:
        address = ipaddress.ip_address(name.split("%")[0])
    except ValueError:
        return name == _here() or name.rpartition(".")[2] in _UNOWNED
    return not address.is_global


@cache
def _here() -> str:
    return socket.gethostname().casefold()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host

"""Asking the host itself: its API on this machine, or a command of its own."""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from ..machine.gpus import bounded_output

_MOST = 1 << 20
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)


class EffectError(Exception):
    """The host did not do it; the text says why.

    Attributes:
        nothing_done: it is certain that nothing happened; else it may have happened all the same.
        silent: there was no answer; later there may be one.
        absent: what was to be taken back is not there.
    """

    def __init__(
        self, why: str, *, nothing_done: bool = True, silent: bool = False, absent: bool = False
    ) -> None:
        super().__init__(why)
        self.nothing_done = nothing_done
        self.silent = silent
        self.absent = absent


def call(method: str, url: str, body: Mapping[str, Any] | None) -> None:
    """A request to this machine; no proxy, no redirect.

    Raises:
        EffectError: not answered with success, or the address is not on loopback.
    """
    if not on_loopback(url):
        raise EffectError(f"{url} is not on this machine")
    try:
        with (
            httpx.Client(timeout=_TIMEOUT, trust_env=False, follow_redirects=False) as client,
            client.stream(method, url, json=body) as answer,
        ):
            text = b""
            for block in answer.iter_bytes():
                text = (text + block)[:_MOST]
                if len(text) == _MOST:
                    break
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EffectError(
            f"no answer from {url} ({str(error) or type(error).__name__})",
            nothing_done=isinstance(error, httpx.ConnectError | httpx.ConnectTimeout),
            silent=True,
        ) from None
    if not answer.is_success:
        words = " ".join(text[:200].decode("utf-8", "replace").split())
        raise EffectError(
            f"{url} answered {answer.status_code} {words}".rstrip(),
            absent=answer.status_code in (404, 410),
        )


def on_loopback(url: str) -> bool:
    """Whether a URL names this machine by a loopback address or ``localhost``."""
    try:
        parsed = httpx.URL(url)
        if parsed.scheme not in ("http", "https") or parsed.userinfo:
            return False
        return parsed.host == "localhost" or ipaddress.ip_address(parsed.host).is_loopback
    except (httpx.InvalidURL, ValueError):
        return False


def run(argv: Sequence[str], timeout: float) -> None:
    """A command, without a shell.

    Raises:
        EffectError: it cannot be started, took too long or failed.
    """
    if sys.platform == "win32" and Path(argv[0]).suffix.lower() in (".bat", ".cmd"):
        # These run in a shell whatever one does, which reads their arguments again.
        raise EffectError(f"{argv[0]} is a batch file")
    try:
        code, text = bounded_output(argv, dict(os.environ), timeout, _MOST)
    except subprocess.TimeoutExpired:
        raise EffectError(
            f"{argv[0]} did not end within {timeout:.0f} s", nothing_done=False
        ) from None
    except (OSError, ValueError) as error:
        raise EffectError(f"{argv[0]} does not start ({error})") from None
    if code != 0:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        why = lines[-1][:200] if lines else f"exit code {code}"
        raise EffectError(f"{argv[0]} failed: {why}", nothing_done=False)

"""Ollama as a host: docs/hosts/ollama.md says what a user sees of it."""

from __future__ import annotations

from collections.abc import Iterable

from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import Host
from srhpm_plugin.machine.types import Machine
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import HostRequest, PlanKind

from .compat import former_format
from .host import Ollama


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """Ollama."""
    return (Ollama(),)


@hookimpl(tryfirst=True)
def srhpm_plan_kind(
    request: HostRequest, model: ModelInfo, machine: Machine
) -> tuple[PlanKind, str] | None:
    """``stock`` for files that only Ollama's own server can load, wherever they lie."""
    why = former_format(model)
    return ("stock", why) if why else None

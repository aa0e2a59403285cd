"""Loading plugins: built-ins and third parties alike, through one entry point group."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from typing import TypeVar

import pluggy

from . import hookspecs
from .backend import Backend
from .blame import Blame, Blamed
from .errors import UserError
from .host import Host

T = TypeVar("T")

GROUP = "srhpm_plugin.v1"

# The built-ins are also named as entry points, for `pip show` and for third parties to find; the
# list here keeps them available when the package runs from a folder without metadata.
BUILTINS = (
    "srhpm_plugin.backends.srhpm",
    "srhpm_plugin.backends.stock",
    "srhpm_plugin.integrations.clients",
    "srhpm_plugin.integrations.jan",
    "srhpm_plugin.integrations.lemonade",
    "srhpm_plugin.integrations.llamaserver",
    "srhpm_plugin.integrations.llamaswap",
    "srhpm_plugin.integrations.lmstudio",
    "srhpm_plugin.integrations.ollama",
    "srhpm_plugin.integrations.ramalama",
    "srhpm_plugin.integrations.unsloth",
    "srhpm_plugin.planner.steps",
    "srhpm_plugin.planner.sources",
)


@dataclass(frozen=True)
class BrokenPlugin:
    """A third-party plugin that could not be loaded, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Plugins:
    """The loaded plugins; ``broken`` and ``strangers`` are for ``srhpm-plugin doctor``.

    Attributes:
        manager: pluggy's.
        broken: third-party plugins that were skipped.
        strangers: the entry points of those that were loaded.
    """

    manager: pluggy.PluginManager
    broken: tuple[BrokenPlugin, ...]
    strangers: tuple[metadata.EntryPoint, ...] = ()

    @cached_property
    def _blame(self) -> Blame:
        return Blame(self.strangers)

    @property
    def hook(self) -> Blamed:
        """Call hooks on this; one of a third party's that fails raises a ``UserError``."""
        return Blamed(self._blame, self.manager.hook)

    def backends(self) -> dict[str, Backend]:
        """All backends by name; a third party's replaces a built-in of the same name."""
        found: dict[str, Backend] = {}
        for group in self.hook.srhpm_backends():
            for backend in group:
                blamed = self._blame.brought(backend)
                found.setdefault(blamed.name, blamed)
        return found

    def hosts(self) -> dict[str, Host]:
        """All hosts by name; a third party's replaces a built-in of the same name."""
        found: dict[str, Host] = {}
        for group in self.hook.srhpm_hosts():
            for host in group:
                blamed = self._blame.brought(host)
                found.setdefault(blamed.name, blamed)
        return found

    def host(self, name: str) -> Host:
        """The host called ``name``.

        Raises:
            UserError: there is none.
        """
        return _named("host", "knows", self.hosts(), name)

    def backend(self, name: str) -> Backend:
        """The backend called ``name``.

        Raises:
            UserError: there is none.
        """
        return _named("backend", "brings", self.backends(), name)


def _named(kind: str, verb: str, brought: Mapping[str, T], name: str) -> T:
    if name not in brought:
        names = ", ".join(sorted(brought))
        raise UserError(f"no {kind} {name!r}", f"no plugin {verb} it", f"choose one of: {names}")
    return brought[name]


def load(entry_points: metadata.EntryPoints | None = None) -> Plugins:
    """Loads the built-ins, then every entry point of the group that is not one of them.

    A third-party plugin that fails to import or to register is skipped and reported.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for name in BUILTINS:
        manager.register(importlib.import_module(name), name=name)
    broken: list[BrokenPlugin] = []
    strangers: list[metadata.EntryPoint] = []
    if entry_points is None:
        entry_points = metadata.entry_points(group=GROUP)
    for entry in entry_points:
        # Registered by what it loads: two packages may choose the same entry point name, and one
        # package may be found twice on the path.
        key = entry.value
        if key in BUILTINS or manager.has_plugin(key):
            continue
        # Whatever a stranger's import raises must not take us down, SystemExit included.
        try:
            manager.register(entry.load(), name=key)
            manager.check_pending()
            strangers.append(entry)
        except (Exception, SystemExit) as error:
            if manager.has_plugin(key):
                manager.unregister(name=key)
            broken.append(BrokenPlugin(entry.name, f"{type(error).__name__}: {error}"))
    return Plugins(manager, tuple(broken), tuple(strangers))


@cache
def plugins() -> Plugins:
    """The process-wide plugins, loaded on first use."""
    return load()

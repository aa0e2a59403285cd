"""Loading plugins: built-ins and third parties alike, through one entry point group."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from importlib import metadata

import pluggy

from . import hookspecs
from .backend import Backend
from .errors import UserError

GROUP = "srhpm_plugin.v1"

# The built-ins are also named as entry points, for `pip show` and for third parties to find; the
# list here keeps them available when the package runs from a folder without metadata.
BUILTINS = (
    "srhpm_plugin.backends.srhpm",
    "srhpm_plugin.backends.stock",
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
    """The loaded plugins; ``broken`` is for ``srhpm-plugin doctor``."""

    manager: pluggy.PluginManager
    broken: tuple[BrokenPlugin, ...]

    @property
    def hook(self) -> pluggy.HookRelay:
        """Call hooks on this."""
        return self.manager.hook

    def backends(self) -> dict[str, Backend]:
        """All backends by name; a third party's replaces a built-in of the same name."""
        found: dict[str, Backend] = {}
        for group in self.hook.srhpm_backends():
            for backend in group:
                found.setdefault(backend.name, backend)
        return found

    def backend(self, name: str) -> Backend:
        """The backend called ``name``.

        Raises:
            UserError: there is none.
        """
        backends = self.backends()
        if name not in backends:
            raise UserError(
                f"no backend {name!r}",
                "no plugin brings it",
                f"choose one of: {', '.join(sorted(backends))}",
            )
        return backends[name]


def load(entry_points: metadata.EntryPoints | None = None) -> Plugins:
    """Loads the built-ins, then every entry point of the group that is not one of them.

    A third-party plugin that fails to import or to register is skipped and reported.
    """
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    for name in BUILTINS:
        manager.register(importlib.import_module(name), name=name)
    broken: list[BrokenPlugin] = []
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
        except (Exception, SystemExit) as error:
            if manager.has_plugin(key):
                manager.unregister(name=key)
            broken.append(BrokenPlugin(entry.name, f"{type(error).__name__}: {error}"))
    return Plugins(manager, tuple(broken))


@cache
def plugins() -> Plugins:
    """The process-wide plugins, loaded on first use."""
    return load()

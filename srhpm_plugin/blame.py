"""Whose fault an exception is: a plugin's that fails when it is called is named, not traced."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from types import TracebackType
from typing import Any, TypeVar, cast

from .errors import UserError

T = TypeVar("T")


class PluginError(UserError):
    """A third-party plugin raised something else than a ``UserError``.

    Attributes:
        plugin: the name of its entry point.
        package: what to uninstall, where that is known.
    """

    def __init__(self, plugin: str, package: str | None, error: Exception) -> None:
        self.plugin = plugin
        self.package = package
        do = "type: srhpm-plugin doctor"
        if package:
            do = f"type srhpm-plugin doctor, or remove it: pip uninstall {package}"
        super().__init__(f"the plugin {plugin} failed", f"{type(error).__name__}: {error}", do)


class Blame:
    """Tells third-party plugins' exceptions from our own by the code that they came through.

    Args:
        entries: the entry points that were loaded, built-ins left out.
    """

    def __init__(self, entries: tuple[metadata.EntryPoint, ...]) -> None:
        self._entries: Mapping[str, metadata.EntryPoint] = {
            entry.module.partition(".")[0]: entry for entry in reversed(entries)
        }

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Raises :class:`PluginError` for what a plugin raises; ours passes as it is."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            entry = self._culprit(error.__traceback__)
            if entry is None:
                raise
            package = entry.dist.name if entry.dist is not None else None
            raise PluginError(entry.name, package, error) from error

    def _culprit(self, trace: TracebackType | None) -> metadata.EntryPoint | None:
        """The plugin whose code is the innermost on the way to the error."""
        found = None
        while trace is not None:
            name = str(trace.tb_frame.f_globals.get("__name__", ""))
            found = self._entries.get(name.partition(".")[0], found)
            trace = trace.tb_next
        return found

    def call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, whose exceptions are blamed; what it would yield later it yields now."""

        def blamed(*args: Any, **named: Any) -> Any:
            with self():
                result = function(*args, **named)
                if isinstance(result, list):  # of every plugin's answer
                    return [list(r) if isinstance(r, Iterator) else r for r in result]
                return result

        return blamed

    def brought(self, thing: T) -> T:
        """A third party's backend or host, all of whose methods are blamed; ours as it is."""
        package = type(thing).__module__.partition(".")[0]
        return cast("T", Blamed(self, thing)) if package in self._entries else thing


class Blamed:
    """Something of which every attribute that can be called is blamed."""

    def __init__(self, blame: Blame, thing: object) -> None:
        self._blame = blame
        self._thing = thing

    def __getattr__(self, name: str) -> Any:
        with self._blame():
            value = getattr(self._thing, name)
        return self._blame.call(value) if callable(value) else value

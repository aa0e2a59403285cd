"""Engines that the commands can run without a native server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from srhpm_plugin.backend import Backend, Command
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.plan import LaunchPlan
from srhpm_plugin.plugins import plugins


class FakeBackend:
    """Runs ``tests/fake_server.py``; ``options`` for every run, ``drafting`` with a drafter."""

    def __init__(
        self, name: str, fake: tuple[str, str], options: list[str], drafting: list[str]
    ) -> None:
        self.name = name
        self.fake = fake
        self.options = options
        self.drafting = drafting
        self.built = True

    def server(self) -> Path | None:
        return Path(self.fake[0]) if self.built else None

    def missing(self) -> str:
        return "make fake"

    def command(self, plan: LaunchPlan) -> Command:
        drafting = self.drafting if plan.draft else []
        name = f"{self.name}{'+draft' if plan.draft else ''}"
        return Command((*self.fake, "--name", name, *self.options, *drafting), {})

    def ready_url(self, base_url: str) -> str:
        return base_url + "/health"

    def exactness(self, model_types: tuple[str, ...], plan: LaunchPlan) -> tuple[str, ...]:
        return ()


@pytest.fixture
def fake_backend(
    fake_server: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[..., FakeBackend]]:
    """Adds a backend, through the hook that any plugin uses; it wins over a built-in of its
    name."""
    # No other model is known, so that `auto` finds the same on every machine.
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    manager = plugins().manager
    added: list[object] = []

    def add(
        name: str, options: list[object] | None = None, drafting: list[object] | None = None
    ) -> FakeBackend:
        def words(given: list[object] | None) -> list[str]:
            return [str(option) for option in given or ()]

        backend = FakeBackend(name, fake_server, words(options), words(drafting))

        class Plugin:
            @hookimpl
            def srhpm_backends(self) -> list[Backend]:
                return [backend]

        plugin = Plugin()
        manager.register(plugin)
        added.append(plugin)
        return backend

    yield add
    for plugin in added:
        manager.unregister(plugin)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line in this process: exit code, standard output, standard error."""
    from srhpm_plugin.cli import main

    def run(*args: object) -> tuple[int, str, str]:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(arg) for arg in args])
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run

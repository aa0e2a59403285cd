"""``srhpm-plugin doctor``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

import click

from . import _checks, _gpu_state, _installs, _model_files, _services, _speed, _tools
from ._check import Check

_MARKS = {"ok": "ok", "warning": "warn", "broken": "BROKEN"}


@click.command(name="doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Says what is wrong on this machine, and the command that mends it.

    Exit code 1 when something is broken; warnings leave it 0.
    """
    found = list(examine())
    broken = sum(check.state == "broken" for check in found)
    if as_json:
        checks = [{**asdict(check), "ok": check.ok} for check in found]
        click.echo(json.dumps({"ok": not broken, "checks": checks}, indent=2))
    else:
        _show(found)
    if broken:
        raise click.exceptions.Exit(1)


def examine() -> Iterator[Check]:
    """All checks, in the order shown. One that fails itself is reported, the others go on."""
    from ..calibrate.store import current
    from ..machine.probe import probe
    from ..machine.tree import Tree

    yield from _guarded("plugins", _checks.check_plugins())
    server = list(_guarded("server", _checks.check_server()))
    yield from server
    built = all(check.ok for check in server)
    yield from _guarded("stock server", _checks.check_baseline())
    yield from _guarded("tools", _tools.check_tools(built))
    yield from _guarded("environment", _checks.check_environment())
    yield from _guarded("llama.cpp configuration", _checks.check_config_files())
    program = _checks.server_program() if built else None
    machine, tree = probe(program), Tree()
    measured = current(machine)
    yield from _guarded("services", _services.check_services(machine, program))
    yield from _guarded("machine", _checks.check_machine(machine))
    yield from _guarded("threads", _speed.check_cores(machine, tree))
    yield from _guarded("processor clock", _speed.check_clock(tree))
    yield from _guarded("huge pages", _speed.check_huge_pages(machine, tree, measured))
    yield from _guarded("memory", _speed.check_memory(machine, tree))
    yield from _guarded("memory channels", _speed.check_modules(tree, measured))
    yield from _guarded("GPU state", _gpu_state.check_gpu_state(tree))
    yield from _guarded("folders", _checks.check_folders())
    yield from _guarded("models", _checks.check_models())
    yield from _guarded("model files", _model_files.check_models(tree))
    yield from _guarded("installations", _installs.check_installations())
    yield from _guarded("launches", _checks.check_launches())


def _guarded(name: str, checks: Iterator[Check]) -> Iterator[Check]:
    try:
        yield from checks
    except Exception as error:
        yield Check(name, "broken", f"this check failed: {type(error).__name__}: {error}")


def _show(found: list[Check]) -> None:
    width = max(len(check.name) for check in found)
    for check in found:
        # Paths, versions and plugins' messages come from outside: no line break, no escape codes.
        detail = "".join(c if c.isprintable() else "?" for c in check.detail)
        click.echo(f"{_MARKS[check.state]:<6}  {check.name:<{width}}  {detail}")
        if check.fix and not check.ok:
            click.echo(f"{'':<6}  {'':<{width}}  -> {check.fix}")

"""``srhpm-plugin serve``."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from ..launch import ports
from ..plugins import plugins
from ..serve.interfaces import ServedModel
from ..serve.settings import Settings, from_environment

_SHOWN = 12


@click.command("serve")
@click.option("--host", help="Address; needs --api-key if not local.  [default: 127.0.0.1]")
@click.option(
    "--port", type=click.IntRange(1, 65535), help="Port.  [default: 11434, or the next free one]"
)
@click.option(
    "--api-key", envvar="SRHPM_API_KEY", help="What clients must send.  [env: SRHPM_API_KEY]"
)
@click.option(
    "--draft",
    type=click.Choice(["auto", "none", "ngram"]),
    help="The drafter of every model.  [default: auto]",
)
@click.option(
    "--ctx", type=click.IntRange(1), help="Context per slot where nobody says one, tokens."
)
@click.option(
    "--parallel", type=click.IntRange(1), help="Requests at the same time, per model.  [default: 1]"
)
@click.option(
    "--keep-alive",
    metavar="DURATION",
    help="How long a model stays loaded when nobody uses it, e.g. 5m; -1 for ever.  [default: 5m]",
)
@click.option(
    "--front",
    metavar="URL",
    help="Another host: what is not SR-HPM's goes through to it untouched.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line per event.")
@click.option("--dry-run", is_flag=True, help="Print models and address, start nothing.")
def command(*, as_json: bool, dry_run: bool, **flags: Any) -> None:
    """Serves all models found: Ollama's and OpenAI's API on one port.

    Models are loaded when they are asked for. Ollama's variables (OLLAMA_HOST, OLLAMA_KEEP_ALIVE,
    OLLAMA_NUM_PARALLEL, OLLAMA_CONTEXT_LENGTH, OLLAMA_ORIGINS ...) count where no option says
    otherwise.
    """
    from ..serve.run import assemble, listen, run
    from ..serve.upstream import base_url, not_ourselves

    settings = from_environment(os.environ, **flags)
    ports.check_exposure(settings.host, settings.api_key)
    if settings.front is not None:
        settings = replace(settings, front=base_url(settings.front))
    if dry_run:
        _dry(settings, as_json)
        return
    parts = assemble(settings)
    address = listen(settings)
    # The port may be another one than was wished for.
    parts = replace(parts, settings=replace(settings, port=address.sock.getsockname()[1]))
    if settings.front is not None:
        not_ourselves(settings.front, address.url)

    def ready() -> None:
        models = parts.catalog.all()
        if as_json:
            event = {"event": "ready", "url": address.url, "models": len(models)}
            click.echo(json.dumps({**event, "note": address.note}))
        else:
            _announce(settings, address.url, address.note, models)

    def stopping() -> None:
        if as_json:
            click.echo(json.dumps({"event": "stopping"}))
        else:
            click.echo("\nStopping; Ctrl-C again does not wait for what is being answered.")

    run(parts, address, ready, stopping)
    if as_json:
        click.echo(json.dumps({"event": "stopped"}))


def _announce(
    settings: Settings, url: str, note: str | None, models: Sequence[ServedModel]
) -> None:
    if note:
        click.echo(f"note: {note}", err=True)
    _list(models)
    click.echo(
        f"\nReady at {url}\n"
        f"  Ollama API   {url}\n"
        f"  OpenAI API   {url}/v1\n"
        f"  status       {url}/srhpm\n"
    )
    if settings.front is not None:
        click.echo(f"All that is not SR-HPM's goes through to {settings.front}.")
    if not ports.is_loopback(settings.host):
        click.echo(f"It listens on {settings.host}: machines that have the key reach it too.")
    click.echo("Ctrl-C stops it.")


def _list(models: Sequence[ServedModel]) -> None:
    if not models:
        click.echo("No models were found; name folders of .gguf files in SRHPM_MODELS.")
        return
    click.echo(f"{len(models)} {'model' if len(models) == 1 else 'models'}:")
    for model in models[:_SHOWN]:
        unfit = f"  cannot be run: {model.unfit}" if model.unfit else ""
        click.echo(f"  {model.name:<40} {model.nbytes / 1e9:7.1f} GB  {model.origin}{unfit}")
    if len(models) > _SHOWN:
        click.echo(f"  and {len(models) - _SHOWN} more: srhpm-plugin models")


def _dry(settings: Settings, as_json: bool) -> None:
    from ..serve.catalog import ModelCatalog
    from ..serve.run import listen
    from ..serve.store import OwnStore

    address = listen(settings)
    address.sock.close()
    catalog = ModelCatalog(OwnStore())
    models, troubles = catalog.all(), catalog.troubles
    backend = plugins().backend(settings.backend)
    built = backend.server() is not None
    if as_json:
        listed = [
            {
                "name": model.name,
                "origin": model.origin,
                "path": str(model.path),
                "bytes": model.nbytes,
                "unfit": model.unfit,
            }
            for model in models
        ]
        said = {"url": address.url, "note": address.note, "built": built, "models": listed}
        click.echo(json.dumps({**said, "troubles": list(troubles)}, indent=2))
        return
    for trouble in (*troubles, *([address.note] if address.note else [])):
        click.echo(f"note: {trouble}", err=True)
    _list(models)
    do = "" if built else f"; first type: {backend.missing()}"
    click.echo(f"\nNothing was started; it would listen at {address.url}{do}")

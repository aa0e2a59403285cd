"""What ``srhpm-plugin doctor`` says of a build's tools, found as a build finds them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from ..errors import UserError
from ..native import toolchain
from ._check import Check

_INSTALL = {
    "win32": "winget install Microsoft.VisualStudio.2022.BuildTools",
    "darwin": "xcode-select --install",
}


def check_tools(built: bool) -> Iterator[Check]:
    """Compiler, CMake, Ninja and ccache. ``built``: there is a server already, so nothing depends
    on them."""
    try:
        yield Check("compiler", "ok", toolchain.compiler())
    except UserError as error:
        fix = (
            error.do
            if os.environ.get("CXX")
            else _INSTALL.get(sys.platform, "sudo apt install g++")
        )
        yield Check("compiler", "warning" if built else "broken", error.why, fix)
    for name in ("cmake", "ninja"):
        found, why = toolchain.locate(name)
        yield Check(name, "ok", str(found) if found else f"{why}; a build will fetch it from PyPI")
    ccache = toolchain.ccache()
    none = "not installed; with it, building again from scratch is quicker"
    yield Check("ccache", "ok", str(ccache) if ccache else none)

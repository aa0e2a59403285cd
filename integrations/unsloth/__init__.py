"""Unsloth Studio: a folder of ours for its setting "Custom llama.cpp folder".

Facts (unsloth 015bdef0, ``studio/backend``): the setting lies in Studio's database, which is left
to Studio; it takes a folder with ``llama-server`` in it or in ``build/bin``, and while one is set
Studio starts nothing else. Before it count ``LLAMA_SERVER_PATH`` (a program) and
``UNSLOTH_LLAMA_CPP_PATH`` (a folder). Its own build lies in ``~/.unsloth/llama.cpp``, with
``UNSLOTH_STUDIO_HOME`` in that folder.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.files import expand
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.host import (
    HandOver,
    Host,
    HostCall,
    HostModel,
    Installation,
    Mode,
    Steps,
    Tools,
    Translated,
    dropin_files,
)
from srhpm_plugin.install.operations import MakeFolder
from srhpm_plugin.install.state import OWN, state_folder
from srhpm_plugin.plan import HostRequest

_NAME = "llama-server.exe" if sys.platform == "win32" else "llama-server"
_SPECULATION = ("--spec-", "--model-draft", "-md", "--draft")
_DIST = re.compile(r"unsloth-(\d[\w.!+]*)\.dist-info")
_LAYOUTS = (Path(), Path("build", "bin"), Path("build", "bin", "Release"))


class UnslothStudio:
    """See :class:`srhpm_plugin.host.Host`."""

    name = "unsloth-studio"
    title = "Unsloth Studio"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for root in _roots(path):
            server = _bundled(root)
            how = "a folder of ours for its setting Custom llama.cpp folder"
            yield Installation(
                host=self.name,
                root=root,
                version=_version(root),
                installable=True,
                how=how if server else f"{how}; it has no llama.cpp it could hand over to",
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        place = tools.state / _NAME
        original = _bundled(found.root)
        return Steps(
            (
                MakeFolder(place.parent),
                *dropin_files(place, self.name, original, tools, "all"),
            ),
            pick=(
                "In Unsloth Studio's settings search for Custom llama.cpp folder, press Change and "
                f"choose {place.parent}; reload the model.",
                f"Or start Studio with LLAMA_SERVER_PATH={place} in its environment.",
            ),
            notes=(
                "Before uninstalling press Use bundled there: while a folder is chosen, Studio "
                "starts nothing else.",
            ),
        )

    def registered(self, found: Installation) -> bool:
        """Whether our folder is there; which one is chosen only Studio knows."""
        place = state_folder(self.name, found.root) / OWN / _NAME
        return place.is_file() and Note.path_for(place).is_file()

    def models(self, found: Installation) -> Iterable[HostModel]:
        """None of its own: its files are Hugging Face's cache, which is looked at anyway."""
        return ()

    def own_server(self, found: Installation) -> Path | None:
        return _bundled(found.root)

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """Only the server tells it."""
        return None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """Studio's choice of speculation, where it stands in no argument or in one that means two
        things: Auto is ``--spec-default``, which leaves it to the server, Off is nothing at all."""
        said = {a.partition("=")[0] for a in call.argv if a.startswith(_SPECULATION)}
        draft = request.draft
        if said == {"--spec-default"}:
            draft = call.env.get("SRHPM_DRAFT") or "auto"
        elif not said and draft == "auto":
            draft = "none"
        return Translated(replace(request, draft=draft), request.model.name)


def _roots(path: Path | None) -> Iterator[Path]:
    """Folders in which a Studio keeps its things."""
    if path is not None:
        candidates = [expand(path).absolute()]
    else:
        named = os.environ.get("UNSLOTH_STUDIO_HOME") or os.environ.get("STUDIO_HOME")
        candidates = [expand(named).absolute()] if named else []
        candidates.append(Path.home() / ".unsloth")
    for candidate in candidates:
        try:
            if (candidate / "studio").is_dir() or (candidate / "llama.cpp").is_dir():
                yield candidate.resolve()
        except (OSError, RuntimeError, ValueError):
            continue


def _version(root: Path) -> str | None:
    """Of the package ``unsloth`` in Studio's Python environment, as its folder is called."""
    for base in (root / "studio", root):
        for packages in ("lib/python*/site-packages", "Lib/site-packages"):
            for folder in sorted((base / "unsloth_studio").glob(f"{packages}/unsloth-*.dist-info")):
                found = _DIST.fullmatch(folder.name)
                if found:
                    return found[1]
    return None


def _bundled(root: Path) -> Path | None:
    """Studio's own ``llama-server``."""
    for layout in _LAYOUTS:
        server = root / "llama.cpp" / layout / _NAME
        if server.is_file():
            return server
    return None


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """Unsloth Studio."""
    return (UnslothStudio(),)

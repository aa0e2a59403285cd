"""LM Studio: a runtime pack of our own beside LM Studio's, picked in Settings > Runtime."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from srhpm_plugin.errors import UserError
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
)
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.untrusted import inside

from . import models as _models
from .clone import clone, select, source_of, without_us
from .pack import SUFFIX, Pack, packs, platform, source
from .places import PREFERENCES, homes, lms, models_folder, version

_GET = "install a llama.cpp runtime in LM Studio: Settings > Runtime"


class LMStudio:
    """See :class:`srhpm_plugin.host.Host`."""

    name = "lm-studio"
    title = "LM Studio"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for home in homes(path):
            pack = source(home)
            usable = isinstance(pack, Pack) and platform() != "mac"
            yield Installation(
                host=self.name,
                root=home,
                version=version(home),
                installable=usable,
                how=_how(home, pack),
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        pack = source(found.root)
        if platform() == "mac" or not isinstance(pack, Pack):
            why = _how(found.root, pack)
            raise UserError(f"cannot install in LM Studio ({found.root})", why, _GET)
        label = f"{pack.name}{SUFFIX}@{pack.version}"
        operations = tuple(clone(found.root, pack, tools, "all", self.name))
        selection = tuple(select(found.root, pack)) if mode == "all" else ()
        pick = (
            "Open LM Studio, then Settings > Runtime (Ctrl+Shift+R).",
            f'Under "Selections" choose "SR-HPM · ..." ({label}) for GGUF.',
            "Load a model as always; `srhpm-plugin status` says what runs it.",
        )
        notes = [
            "Restart LM Studio if it is open: it looks for runtimes when it starts.",
            f"The runtime is made of {pack.label}. An update of LM Studio's runtimes leaves it as "
            "it is; run this command again to make it of the new one.",
        ]
        if mode == "all" and not selection:
            notes.append("Whether the runtime is selected could not be told: choose it by hand.")
        if mode == "all" and lms(found.root):
            notes.append("If `lms` cannot reach LM Studio, choose the runtime by hand.")
        return Steps(operations + selection, pick, tuple(notes))

    def registered(self, found: Installation) -> bool:
        return _clone(found.root) is not None

    def models(self, found: Installation) -> Iterable[HostModel]:
        return _models.models(found.root)

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """The arguments say everything but the name and the draft model saved for it."""
        home = Path(call.facts.get("home", ""))
        root = models_folder(home)
        name = _models.identifier(root, request.model)
        if name is None:
            return Translated(request, request.model.name)
        draft = _models.drafter(root, _models.saved(home, name))
        return Translated(request, name, (draft,) if draft else ())

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """See :class:`srhpm_plugin.host.TakesOut`."""
        return without_us(content) if path.name == PREFERENCES else None


def _how(home: Path, pack: Pack | str) -> str:
    """How ours is registered, or why it cannot be, and whether it is out of date."""
    if platform() == "mac":
        return "not on macOS: no runtime pack but LM Studio's own has been seen to work there"
    if isinstance(pack, str):
        return pack
    ours = _clone(home)
    how = f"a runtime pack of its own, made of {pack.label}"
    made_of = source_of(ours) if ours else None
    if made_of is None or made_of == pack.label:
        return how
    if any(made_of == other.label for other in packs(home)):
        return f"{how}; the one in place is made of {made_of}: install again to renew it"
    return f"{how}; the one in place is made of {made_of}, which is gone: install again to renew it"


def _clone(home: Path) -> Pack | None:
    """Our pack, if it is whole."""
    for pack in packs(home):
        server = inside(pack.folder, pack.server or "")
        if pack.ours and server is not None and server.is_file() and source_of(pack):
            return pack
    return None


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """LM Studio."""
    return (LMStudio(),)

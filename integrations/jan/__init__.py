"""Jan up to 0.8.4: a llama.cpp backend of our own, picked in Settings > Llama.cpp.

From 0.8.5 on Jan runs models in a program of its own (``jan-llama-worker``) and starts no
``llama-server``; there a running server of ours is added as a provider.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
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
    dropin_files,
)
from srhpm_plugin.install.linked import linked
from srhpm_plugin.install.operations import CopyFile, MakeFolder, Operation
from srhpm_plugin.plan import HostRequest

from ..clients import address, forms
from . import models as _models
from .places import (
    BACKENDS,
    Backend,
    backends,
    data_folders,
    note_of,
    numbers,
    own_name,
    program,
    version,
)

_FIRST, _LAST = (0, 6, 6), (0, 8, 4)
_ORIGINAL = ".srhpm-original"
_PROVIDER = "type srhpm-plugin install --host jan, which says how it is told our address"


class Jan:
    """See :class:`srhpm_plugin.host.Host`."""

    name = "jan"
    title = "Jan"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for data in data_folders(path):
            said = version(data)
            why = _unusable(said)
            yield Installation(
                host=self.name,
                root=data,
                version=said,
                installable=why is None,
                how=why or _how(data),
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        why = _unusable(found.version)
        if why:
            raise UserError(f"cannot install in Jan ({found.root})", why, _PROVIDER)
        original = _best(found.root)
        tag = original.tag if original else _tag(tools.server_folder)
        layout = original.server.parent.relative_to(original.folder) if original else Path()
        name = own_name(platform.machine())
        target = found.root / BACKENDS / tag / name
        place = target / layout / program()
        try:
            operations = tuple(_operations(original, target, place, tools, self.name))
        except (OSError, ValueError) as error:
            assert original is not None
            raise UserError(
                f"cannot clone {original.folder}", str(error), "install that backend again in Jan"
            ) from error
        return Steps(
            operations,
            pick=(
                "Open Jan, then Settings > Llama.cpp (under Model Providers).",
                f'Under "Version & Backend" choose "{tag}/{name}".',
                "Load a model as always; `srhpm-plugin status` says what runs it.",
            ),
            notes=(
                "Restart Jan if it is open: it looks for backends when it starts.",
                'Switch off "Auto update engine" there, or Jan may choose another backend.',
            ),
        )

    def by_hand(self) -> Steps:
        """See :class:`srhpm_plugin.host.ByHand`: a provider, which every version has."""
        url = address.url()
        trouble = address.trouble(url)
        notes = ("from 0.8.5 on Jan starts no llama-server: this way it has SR-HPM's models",)
        return Steps((), forms.filled(forms.JAN, url), (*notes, *([trouble] if trouble else [])))

    def registered(self, found: Installation) -> bool:
        return _ours(found.root) is not None

    def models(self, found: Installation) -> Iterable[HostModel]:
        return _models.models(found.root)

    def own_server(self, found: Installation) -> Path | None:
        """Of the backend that ours is made of."""
        backend = _best(found.root)
        return backend.server if backend else None

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """The folders of Jan's backends are called by it."""
        backend = _best(found.root)
        return backend.tag if backend else None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """Jan gives the model's id as alias; its drafter is in the arguments where it has one."""
        return Translated(request, _alias(call.argv) or request.model.name)


def _operations(
    original: Backend | None, target: Path, place: Path, tools: Tools, host: str
) -> Iterator[Operation]:
    """Jan takes the folder for a backend when the server is there, which is the last to come."""
    kept = None
    if original is None:
        yield MakeFolder(place.parent)
    else:
        server = original.server.relative_to(original.folder)
        yield from linked(original.folder, target, {server.as_posix()})
        kept = Path(place.name + _ORIGINAL)
        yield CopyFile(original.server, place.with_name(kept.name), link=True)
    facts = {"source": original.label if original else ""}
    yield from dropin_files(place, host, kept, tools, "all", facts, router=True)


def _unusable(said: str | None) -> str | None:
    """Why ours cannot be registered in this version, in words."""
    parts = numbers(said) if said else None
    if parts is None:
        return "its version cannot be told (no store.json): start Jan once"
    if parts > _LAST:
        return (
            "from 0.8.5 on Jan runs models in a program of its own and starts no llama-server; a "
            "server of ours can be added as a provider (docs/hosts/jan.md)"
        )
    if parts < _FIRST:
        return "before 0.6.6 Jan had no llama.cpp backends to choose from: update it to 0.8.4"
    return None


def _how(data: Path) -> str:
    best, ours = _best(data), _ours(data)
    if best is None:
        return "a llama.cpp backend of its own; Jan has none it could hand over to"
    how = f"a llama.cpp backend of its own, made of {best.label}"
    note = note_of(ours) if ours else None
    if note is None or note.facts.get("source") == best.label:
        return how
    made_of = note.facts.get("source") or "none"
    return f"{how}; the one in place is made of {made_of}: install again to renew it"


def _best(data: Path) -> Backend | None:
    return next((backend for backend in backends(data) if not backend.ours), None)


def _ours(data: Path) -> Backend | None:
    return next((b for b in backends(data) if b.ours and note_of(b)), None)


def _tag(server_folder: Path) -> str:
    """The tag of our own server; folders of builds are called by it."""
    for part in reversed(server_folder.parts):
        found = re.match(r"b\d+", part)
        if found:
            return found[0]
    from srhpm_plugin.native.source import DEFAULT_TAG

    return f"b{DEFAULT_TAG}"


def _alias(argv: tuple[str, ...]) -> str | None:
    for i, arg in enumerate(argv[:-1]):
        if arg in ("-a", "--alias"):
            return argv[i + 1]
    return None


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """Jan."""
    return (Jan(),)

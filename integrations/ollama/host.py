"""Ollama 0.30 and later, which starts a ``llama-server`` for every GGUF model."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.files import expand
from srhpm_plugin.host import (
    HandOver,
    HostCall,
    HostModel,
    Installation,
    Mode,
    Steps,
    Tools,
    Translated,
    dropin_files,
)
from srhpm_plugin.install.operations import Call, Operation
from srhpm_plugin.plan import HostRequest

from . import api, older, pinned, twins
from . import service as service_module
from .layout import KEPT, Tree, trees, version_of
from .names import TWIN
from .service import Service, service_of
from .store import Entry, Store
from .translate import translate

NAME = "ollama"
_FIRST = (0, 30)  # the first version that starts a llama-server
_SERVE = f"upgrade Ollama, or {older.BY_HAND}"


class Ollama:
    """See :class:`srhpm_plugin.host.Host`."""

    @property
    def name(self) -> str:
        """``ollama``."""
        return NAME

    @property
    def title(self) -> str:
        """``Ollama``."""
        return "Ollama"

    def find(self, path: Path | None) -> Iterator[Installation]:
        """Copies in the places of Ollama's installers and on PATH, or at ``path``."""
        for tree in trees(path):
            version = version_of(tree)
            service = service_of(tree.program)
            front = _is_older(tree, version) and older.moves(service)
            why_not = None if front else _why_not(tree, version)
            how = f"in place of {tree.server}, which is kept"
            if front:
                how = "in front of it, which moves to another port"
            yield Installation(
                host=NAME,
                root=tree.lib,
                version=version,
                installable=why_not is None,
                how=why_not or how,
                facts={**_facts(tree, service), **({older.FACT: "yes"} if front else {})},
                user=service.user if service else None,
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        """The drop-in in the server's place, and twins for ``select``.

        Raises:
            UserError: the copy cannot take it, or SR-HPM of another kind is there already.
        """
        if not found.installable:
            raise UserError(f"cannot install in the Ollama at {found.root}", found.how)
        if older.FACT in found.facts:
            return older.steps(found, tools, mode, service_module.FOLDERS[0])
        tree = _tree(found)
        operations: list[Operation] = [
            *dropin_files(tree.server, NAME, Path(KEPT), tools, mode, _DROPIN_FACTS, in_place=True)
        ]
        notes = ["a model that is loaded stays as it is until it is loaded again: ollama stop NAME"]
        notes += _unreachable(found, tools)
        if mode == "all":
            pick = ("use your models under their names, as before",)
            return Steps(tuple(operations), pick, tuple(notes))
        calls, said = _twins(found)
        operations += calls
        if calls:
            names = ", ".join(str(c.undo_body["model"]) for c in calls if c.undo_body)
            said.insert(0, f"made for this: {names}")
        pick = (f"choose a name that ends in {TWIN}, e.g. with: ollama run NAME:TAG{TWIN}",)
        return Steps(tuple(operations), pick, (*notes, *said))

    def registered(self, found: Installation) -> bool:
        """The drop-in, its note and Ollama's own server lie where they belong; or we stand in front
        of one that has no server."""
        if older.FACT in found.facts:
            return older.registered(service_module.FOLDERS[0])
        tree = _tree(found)
        try:
            note = Note.parse(Note.path_for(tree.server).read_bytes())
        except (OSError, ValueError):
            return False
        return note.host == NAME and tree.server.is_file() and (tree.lib / KEPT).is_file()

    def models(self, found: Installation) -> Iterator[HostModel]:
        """The store's models."""
        return map(_host_model, _store(found).entries())

    def own_server(self, found: Installation) -> Path | None:
        """Kept beside the drop-in where that stands in for it."""
        tree = _tree(found)
        return next((p for p in (tree.lib / KEPT, tree.server) if p.is_file()), None)

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """What Ollama's sources of that version name, see :mod:`.pinned`."""
        return pinned.tag(found.version) if found.version else None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """What Ollama's arguments leave out, see :mod:`.translate`."""
        return translate(call, request)


# Ollama loses a model whose client hangs up while an event waits (native/overlay/common/
# srhpm-events.h): the tokens of a pass go to it as one.
_DROPIN_FACTS = {"events": "pass"}


def _why_not(tree: Tree, version: str | None) -> str | None:
    """Why SR-HPM cannot be put into a copy."""
    if tree.app is not None:
        return (
            "the app's bundle is signed as a whole and a changed file in it breaks the seal: "
            "unpack ollama-darwin.tgz into a folder of your own and name that with --path"
        )
    if tree.server.is_file():
        return None
    if _is_older(tree, version):
        return f"Ollama {version} starts no llama-server, as 0.30 and later do: {_SERVE}"
    return f"there is no {tree.server}: Ollama before 0.30 has none; {_SERVE}"


def _is_older(tree: Tree, version: str | None) -> bool:
    if tree.app is not None or tree.server.is_file() or version is None:
        return False
    return _number(version) < _FIRST


def _number(version: str) -> tuple[int, ...]:
    parts = version.partition("-")[0].split(".")
    return tuple(int(p) for p in parts if p.isdecimal())


def _facts(tree: Tree, service: Service | None) -> dict[str, str]:
    environment = {**os.environ, **(service.environment if service else {})}
    facts = {"models": str(_models_folder(service))}
    if tree.program is not None:
        facts["program"] = str(tree.program)
    base = api.address(environment)
    if base is not None:
        facts["api"] = base
    if service is not None:
        facts["unit"] = str(service.unit)
        if service.no_home:
            facts["no_home"] = "yes"
    return facts


def _models_folder(service: Service | None) -> Path:
    if service is not None:
        named, home = service.environment.get("OLLAMA_MODELS"), service.home()
        if named:
            return Path(named)
        if home is not None:
            return home / ".ollama" / "models"
    named = os.environ.get("OLLAMA_MODELS")
    return expand(named).absolute() if named else Path.home() / ".ollama" / "models"


def _tree(found: Installation) -> Tree:
    program = found.facts.get("program")
    return Tree(found.root, Path(program) if program else None)


def _unreachable(found: Installation, tools: Tools) -> Iterator[str]:
    """What keeps the service from our package; then Ollama's own server runs."""
    if found.facts.get("no_home") and _in_a_home(tools.python):
        yield (
            f"{found.facts['unit']} hides home folders from Ollama (ProtectHome), and "
            f"{tools.python} lies in one: Ollama's own server will run until this package is "
            "installed elsewhere, e.g. in /opt"
        )


def _in_a_home(path: Path) -> bool:
    return sys.platform == "linux" and path.is_relative_to("/home")


def _twins(found: Installation) -> tuple[list[Call], list[str]]:
    """The requests that make twins, and what there is to say."""
    from srhpm_plugin.machine.probe import probe
    from srhpm_plugin.plugins import plugins

    base = found.facts.get("api")
    again = "srhpm-plugin install --host ollama --mode select"
    if base is None or not api.is_running(base):
        where = f"at {base}" if base else "on this machine"
        command = "sudo systemctl start ollama" if "unit" in found.facts else "ollama serve"
        return [], [
            f"no Ollama answers {where}, so no twins were made: start it (`{command}`) and type: "
            f"{again}"
        ]
    machine = probe(plugins().backend("srhpm").server())
    verdicts = list(twins.judge(_store(found), machine))
    said = [f"no twin for {v.entry.name}: {v.why}" for v in verdicts if v.twin is None]
    if not verdicts:
        said = [f"there are no models in {found.facts['models']} yet: pull one and type: {again}"]
    return list(twins.create(base, verdicts)), said


def _store(found: Installation) -> Store:
    return Store(Path(found.facts["models"]))


def _host_model(entry: Entry) -> HostModel:
    ctx = entry.params.get("num_ctx")
    return HostModel(
        name=str(entry.name),
        path=entry.model or entry.manifest,
        drafter=entry.draft,
        mmproj=entry.projector,
        adapters=entry.adapters,
        ctx=ctx if isinstance(ctx, int) and 0 < ctx < 1 << 27 else None,
        twin=twins.is_twin(entry),
        unfit=entry.unfit,
        words=entry.words,
    )

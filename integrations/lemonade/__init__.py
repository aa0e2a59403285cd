"""Lemonade: our program as ``llamacpp.<backend>_bin`` in its ``config.json``.

Facts (lemonade e385039e, 11.7.0): the value is ``builtin``, ``latest``, a release's tag or an
absolute path. Its documentation calls that path a folder, but since ``config.json`` was introduced
the path itself is what is started (``BackendUtils::get_backend_binary_path``), so ours is the
program's. ``config.json`` holds only what differs from the defaults and is read when ``lemond``
starts; ``lemond`` writes it anew, by the same keys, when a setting is changed through it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from srhpm_plugin.dropin.note import Note
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
from srhpm_plugin.install.operations import MakeFolder, Operation, WriteFile
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.untrusted import member, parse_json, read_bytes, text

from .models import models
from .places import BACKENDS, NAME, built, folders, version

_SECTION = "llamacpp"
_MOST = 1 << 20


class Lemonade:
    """See :class:`srhpm_plugin.host.Host`."""

    name = "lemonade"
    title = "Lemonade"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for one in folders(path):
            yield Installation(
                host=self.name,
                root=one.config,
                version=version(),
                installable=True,
                how="our program for its llama.cpp backends, in its config.json",
                facts={"cache": str(one.cache)},
                user=one.user,
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        file = found.root / "config.json"
        cache = Path(found.facts["cache"])
        old = read_bytes(file, _MOST) if file.exists() else None
        try:
            settings = parse_json(old) if old is not None and old.strip() else {}
        except ValueError as error:
            raise UserError(f"cannot read {file}", str(error), "mend the file") from error
        section = settings.setdefault(_SECTION, {}) if isinstance(settings, dict) else None
        if not isinstance(section, dict):
            raise UserError(f"cannot write {file}", f"its {_SECTION} is no object", "mend the file")
        operations: list[Operation] = []
        for backend in _backends(section, cache, mode):
            place = tools.state / backend / NAME
            was = section.get(f"{backend}_bin")
            original = _own(was) or built(cache, backend)
            facts = {"was": was if isinstance(was, str) else "", "backend": backend}
            operations.append(MakeFolder(place.parent))
            operations += dropin_files(place, self.name, original, tools, mode, facts)
            section[f"{backend}_bin"] = str(place)
        expected = hashlib.sha256(old).hexdigest() if old is not None else None
        operations.append(WriteFile(file, _dumped(settings), expected=expected))
        return Steps(
            tuple(operations),
            pick=_pick(mode),
            notes=("Restart Lemonade (lemond) now: it reads config.json when it starts.",),
        )

    def registered(self, found: Installation) -> bool:
        try:
            settings = parse_json(read_bytes(found.root / "config.json", _MOST))
        except (OSError, ValueError):
            return False
        return any(_ours(settings))

    def models(self, found: Installation) -> Iterable[HostModel]:
        return models(found.root)

    def own_server(self, found: Installation) -> Path | None:
        """Of a backend with a GPU, if there is one."""
        cache = Path(found.facts["cache"])
        servers = [built(cache, backend) for backend in ("cuda", "rocm", "vulkan", "cpu")]
        return next((server for server in servers if server is not None), None)

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """Only the server tells it."""
        return None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """In mode ``select`` only the backend ``cpu`` is ours, which is chosen for a model."""
        return Translated(request, request.model.name, picked=call.mode == "select")

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """See :class:`srhpm_plugin.host.TakesOut`."""
        try:
            settings = parse_json(content)
        except ValueError:
            return None
        for key, note in list(_ours(settings)):
            if was := note.facts.get("was"):
                settings[_SECTION][key] = was
            else:
                del settings[_SECTION][key]
        if settings.get(_SECTION) == {}:
            del settings[_SECTION]
        return _dumped(settings)


def _backends(section: dict[str, Any], cache: Path, mode: Mode) -> Iterator[str]:
    """Those with a program, Lemonade's or the user's; one that it has not fetched it would take for
    there."""
    if mode == "select":
        yield "cpu"
        return
    found = [b for b in BACKENDS if _own(section.get(f"{b}_bin")) or built(cache, b)]
    yield from found or ["cpu"]


def _own(value: object) -> Path | None:
    """The user's own build, if the setting names one."""
    if not isinstance(value, str) or "\0" in value or not Path(value).is_absolute():
        return None
    path = Path(value)
    return path if path.is_file() and not Note.path_for(path).exists() else None


def _ours(settings: object) -> Iterator[tuple[str, Note]]:
    """The keys that name a drop-in of ours, each with its note."""
    section = member(settings, _SECTION)
    for key in section if isinstance(section, dict) else ():
        value = text(section, key)
        if not value or not key.endswith("_bin") or not Path(value).is_absolute():
            continue
        try:
            note = Note.parse(read_bytes(Note.path_for(Path(value)), 65536))
        except (OSError, ValueError):
            continue
        if note.host == Lemonade.name:
            yield key, note


def _dumped(settings: object) -> bytes:
    return (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode()


def _pick(mode: Mode) -> tuple[str, ...]:
    if mode == "all":
        return ("Use Lemonade's models as before.",)
    return (
        "Load a model with the backend cpu: lemonade load MODEL --llamacpp cpu",
        "Models on other backends run as before.",
    )


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """Lemonade."""
    return (Lemonade(),)

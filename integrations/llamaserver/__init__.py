"""llama-server's own router: a program of ours in its place, and twins in a file of presets.

The router starts itself again for each model, so a file of presets alone cannot bring a model to
us: its user starts our program instead of ``llama-server``, with the same arguments.
"""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
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
from srhpm_plugin.install.operations import MakeFolder, Operation, WriteFile
from srhpm_plugin.install.state import OWN, state_folder
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.said import said_version
from srhpm_plugin.untrusted import read_bytes

from . import presets

_MOST = 1 << 20
_MOST_CONTEXT = 1 << 24
_CONTEXT = ("c", "ctx-size", "LLAMA_ARG_CTX_SIZE")
_DRAFTER = ("md", "model-draft", "spec-draft-model", "LLAMA_ARG_SPEC_DRAFT_MODEL")
_PROJECTOR = ("mm", "mmproj", "LLAMA_ARG_MMPROJ")
_EMBEDS = ("embedding", "embeddings", "LLAMA_ARG_EMBEDDINGS")
_NAME = "llama-server.exe" if sys.platform == "win32" else "llama-server"


class LlamaServerRouter:
    """See :class:`srhpm_plugin.host.Host`.

    An installation is a file of presets or a ``llama-server`` (``--path``), without either the one
    that the user's ``PATH`` leads to; neither that program nor its folder is changed.
    """

    name = "llama-server-router"
    title = "llama-server's router"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for root in _files(path) if path else _program():
            presets_file = root.suffix.lower() == ".ini"
            yield Installation(
                host=self.name,
                root=root,
                version=_version(_stock() if presets_file else root),
                installable=True,
                how="a program of ours to start in its place"
                + (", and sections of their own in its presets" if presets_file else ""),
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        place = tools.state / _NAME
        file = found.root if found.root.suffix.lower() == ".ini" else None
        if mode == "select" and file is None:
            raise UserError(
                "cannot choose models of a router without a file of presets",
                "their names come from it",
                f"name it: srhpm-plugin install --host {self.name} --path FILE.ini --mode select",
            )
        edit: tuple[Operation, ...] = ()
        names: list[str] = []
        if file is not None and mode == "select":
            text = _read(file)
            bases = [s for s in _models(text) if not presets.is_twin(s.name)]
            names = [presets.twin_name(s.name) for s in bases]
            if not bases:
                raise UserError(
                    f"cannot write {file}",
                    "it has no section with `model = FILE`",
                    "add one, or install without --mode select",
                )
            try:
                edited = presets.with_twins(text, bases, self.name)
            except ValueError as error:
                raise UserError(
                    f"cannot write {file}", str(error), "give it another name there"
                ) from error
            old = hashlib.sha256(text.encode()).hexdigest()
            edit = (WriteFile(file, edited.encode(), expected=old),)
        original = found.root if file is None else _stock()
        dropin = dropin_files(place, self.name, original, tools, mode, router=True)
        return Steps(
            (MakeFolder(place.parent), *dropin, *edit),
            pick=_pick(place, file, names),
            notes=("Restart the router if it runs.",),
        )

    def registered(self, found: Installation) -> bool:
        note = _note(state_folder(self.name, found.root) / OWN / _NAME)
        if note is None:
            return False
        if note.mode == "all":
            return True
        try:
            return presets.ours(_read(found.root))
        except UserError:
            return False

    def models(self, found: Installation) -> Iterable[HostModel]:
        """Those that the presets name by their full paths."""
        if found.root.suffix.lower() != ".ini":
            return
        try:
            listed = list(_models(_read(found.root)))
        except UserError:
            return
        for section in listed:
            path = _file(section.get(*presets.MODEL))
            if path is None:
                continue
            ctx = section.get(*_CONTEXT) or ""
            yield HostModel(
                name=section.name,
                path=path,
                drafter=_file(section.get(*_DRAFTER)),
                mmproj=_file(section.get(*_PROJECTOR)),
                ctx=int(ctx) if ctx.isdecimal() and 0 < int(ctx) <= _MOST_CONTEXT else None,
                twin=presets.is_twin(section.name),
                unfit="it computes embeddings" if section.get(*_EMBEDS) in _TRUE else None,
            )

    def own_server(self, found: Installation) -> Path | None:
        return _stock() if found.root.suffix.lower() == ".ini" else found.root

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """Only the server tells it."""
        return None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """The router gives the section's name as alias."""
        name = _alias(call.argv)
        picked = name is not None and presets.is_twin(name)
        return Translated(request, name or request.model.name, picked=picked)

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """See :class:`srhpm_plugin.host.TakesOut`."""
        try:
            text = presets.without_us(content.decode())
        except ValueError:
            return None
        return None if text is None else text.encode()


_TRUE = ("true", "1", "on", "enabled")


def _files(path: Path) -> Iterator[Path]:
    """The file named; of a folder its only file of presets, else its ``llama-server``."""
    path = expand(path).absolute().resolve()
    presets_files = sorted(path.glob("*.ini")) if path.is_dir() else []
    for file in (path, *(presets_files if len(presets_files) == 1 else ()), path / _NAME):
        named = file.suffix.lower() == ".ini" or file.name.lower().startswith("llama-server")
        if named and file.is_file() and not Note.path_for(file).exists():
            yield file
            return


def _program() -> Iterator[Path]:
    stock = _stock()
    if stock is not None:
        yield stock


def _stock() -> Path | None:
    """The ``llama-server`` of the user's ``PATH``, unless it is a drop-in of ours."""
    found = shutil.which("llama-server")
    path = Path(found).resolve() if found else None
    return path if path is not None and not Note.path_for(path).exists() else None


def _version(server: Path | None) -> str | None:
    """The llama.cpp tag, as ``--version`` has it; of a build without one the version number."""
    tag = said_version(server, r"^version: (?:\S+ \(build )?([1-9]\d{3,})\b")
    return f"b{tag}" if tag else said_version(server, r"^version: (\S+)")


def _read(file: Path) -> str:
    """Raises :class:`UserError`: it cannot be read."""
    try:
        return read_bytes(file, _MOST).decode()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}", str(error), "mend the file") from error


def _models(text: str) -> Iterator[presets.Section]:
    """Sections that name a file; one called as a repository has its model from there."""
    for section in presets.sections(text).values():
        if section.name != "*" and section.get(*presets.MODEL):
            yield section


def _file(value: str | None) -> Path | None:
    try:
        path = Path(value) if value and "\0" not in value else None
        return path if path is not None and path.is_absolute() and path.is_file() else None
    except OSError:
        return None


def _note(place: Path) -> Note | None:
    try:
        return Note.parse(read_bytes(Note.path_for(place), 65536))
    except (OSError, ValueError):
        return None


def _alias(argv: tuple[str, ...]) -> str | None:
    for i, arg in enumerate(argv[:-1]):
        if re.fullmatch(r"-a|--alias", arg):
            return argv[i + 1]
    return None


def _pick(place: Path, file: Path | None, names: list[str]) -> tuple[str, ...]:
    words = [str(place), *(["--models-preset", str(file)] if file else ["--models-dir", "DIR"])]
    command = subprocess.list2cmdline(words) if sys.platform == "win32" else shlex.join(words)
    start = f"Start the router as {command} --port 8080 (and your other arguments)."
    if not names:
        return (start,)
    return (start, f"Ask it for a model by the name with {presets.MARK}: {names[0]}.")


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """llama-server's router."""
    return (LlamaServerRouter(),)

"""llama-swap: twins ``<model>-srhpm`` in its configuration, or our program in its commands.

One drop-in for each program that the configuration names lies in our own state folder; only the
configuration is changed.
"""

from __future__ import annotations

import hashlib
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
from srhpm_plugin.install.operations import MakeFolder, Operation, WriteFile
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.untrusted import read_bytes

from . import config, edit
from .config import Entry
from .models import model
from .places import configurations, user_of, version

_NONE = "it has no model whose command starts with a llama-server"


class LlamaSwap:
    """See :class:`srhpm_plugin.host.Host`."""

    name = edit.HOST
    title = "llama-swap"

    def find(self, path: Path | None) -> Iterable[Installation]:
        for file in configurations(path):
            try:
                why = None if _entries(_read(file)) else _NONE
            except (OSError, ValueError) as error:
                why = f"its configuration cannot be read: {error}"
            yield Installation(
                host=self.name,
                root=file,
                version=version(),
                installable=why is None,
                how=why or "models of their own in its configuration, or our program in all",
                user=user_of(file),
            )

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        try:
            text = _read(found.root)
            entries = [e for e in _entries(text) if not _ours(e)]
            places = {w: _place(tools, w) for w in dict.fromkeys(e.site.word for e in entries)}
            words = {w: config.quoted(place) for w, place in places.items()}
            if not entries:
                raise ValueError(_NONE)
            if mode == "all":
                edited = edit.with_words(text, [(e.site, words[e.site.word]) for e in entries])
            else:
                edited = edit.with_twins(text, {e.name: words[e.site.word] for e in entries})
            dropins = tuple(self._dropins(entries, places, tools, mode))
        except (OSError, ValueError) as error:
            raise UserError(
                f"cannot write {found.root}",
                str(error),
                "change the commands yourself, see docs/hosts/llama-swap.md",
            ) from error
        content = text.encode()
        return Steps(
            (
                *dropins,
                WriteFile(found.root, edited.encode(), expected=_digest(content)),
            ),
            pick=_pick([e.name for e in entries], mode),
            notes=(
                "llama-swap with -watch-config takes the change up by itself; else restart it.",
            ),
        )

    def _dropins(
        self, entries: list[Entry], places: dict[str, Path], tools: Tools, mode: Mode
    ) -> Iterator[Operation]:
        programs = {e.site.word: e.program for e in entries}
        for word, place in places.items():
            yield MakeFolder(place.parent)
            original = config.located(programs[word])
            yield from dropin_files(place, self.name, original, tools, mode, {"word": word})

    def registered(self, found: Installation) -> bool:
        try:
            return any(map(_ours, _entries(_read(found.root))))
        except (OSError, ValueError):
            return False

    def models(self, found: Installation) -> Iterable[HostModel]:
        try:
            entries = _entries(_read(found.root))
        except (OSError, ValueError):
            return
        for entry in entries:
            one = model(entry)
            if one is not None:
                yield one

    def own_server(self, found: Installation) -> Path | None:
        """Of the first model, also where ours stands for it."""
        try:
            entries = _entries(_read(found.root))
        except (OSError, ValueError):
            return None
        for entry in entries:
            note = edit.note_of(entry.program)
            server = note.original if note else config.located(entry.program)
            if server is not None:
                return server
        return None

    def llama_cpp_tag(self, found: Installation) -> str | None:
        """Only the server tells it."""
        return None

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """Only twins start the drop-in in mode ``select``: each start there is picked."""
        return Translated(request, request.model.name, picked=call.mode == "select")

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """See :class:`srhpm_plugin.host.TakesOut`."""
        try:
            text = edit.without_us(content.decode())
        except ValueError:
            return None
        return None if text is None else text.encode()


def _read(path: Path) -> str:
    return read_bytes(path, config.MOST_BYTES).decode()


def _entries(text: str) -> list[Entry]:
    return list(config.entries(config.parse(text)))


def _ours(entry: Entry) -> bool:
    return edit.note_of(entry.program) is not None


def _place(tools: Tools, word: str) -> Path:
    suffix = tools.dropin.suffix if tools.dropin.suffix.lower() == ".exe" else ""
    return tools.state / _digest(word.encode())[:8] / f"llama-server{suffix}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _pick(names: list[str], mode: Mode) -> tuple[str, ...]:
    if mode == "all":
        return ("Ask llama-swap for its models as before.",)
    return (
        f"Ask llama-swap for a model by its name and {edit.SUFFIX}: {names[0]}{edit.SUFFIX}.",
        f"The names without {edit.SUFFIX} run as before.",
    )


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """llama-swap."""
    return (LlamaSwap(),)

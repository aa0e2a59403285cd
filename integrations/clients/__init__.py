"""Clients that are set by URL: docs/clients.md says what a user sees of them.

They start no server; ``srhpm-plugin serve`` is their host. Where the address stands in a file it is
written there; where it is entered in a form, ``install`` says where.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
)
from srhpm_plugin.install.operations import WriteFile
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.untrusted import MOST_BYTES, read_bytes

from . import address, continue_, forms, vscode, zed


class Settings(Protocol):
    """How one client keeps the address in a file."""

    FILE: str

    def folder(self) -> Path:
        """Where the file lies."""

    def edited(self, text: str, url: str) -> str:
        """With our address; an empty text where there is no file. Raises ``ValueError``."""

    def without_us(self, text: str) -> str:
        """Less what is ours."""

    def is_set(self, text: str, url: str) -> bool:
        """Whether our address is in it."""


@dataclass(frozen=True)
class Client:
    """See :class:`srhpm_plugin.host.Host`.

    Attributes:
        name, title: of the client.
        sentences: what to fill in by hand.
    """

    name: str
    title: str
    sentences: tuple[str, ...]

    def find(self, path: Path | None) -> Iterable[Installation]:
        """Nothing: there is no file to write."""
        return ()

    def by_hand(self) -> Steps:
        """See :class:`srhpm_plugin.host.ByHand`."""
        url = address.url()
        trouble = address.trouble(url)
        return Steps((), forms.filled(self.sentences, url), (trouble,) if trouble else ())

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        """Nothing is written."""
        return self.by_hand()

    def registered(self, found: Installation) -> bool:
        """Nobody can tell."""
        return False

    def models(self, found: Installation) -> Iterable[HostModel]:
        """It has none of its own."""
        return ()

    def translate(self, call: HostCall, request: HostRequest) -> Translated | HandOver:
        """It starts no server."""
        return HandOver(f"{self.title} starts no server")


@dataclass(frozen=True)
class FileClient(Client):
    """A client whose address stands in a file.

    Attributes:
        settings: the file.
    """

    settings: Settings

    def find(self, path: Path | None) -> Iterable[Installation]:
        """Its folder of settings."""
        folder = self.settings.folder() if path is None else expand(path).absolute()
        if folder.is_dir():
            how = f"the address of srhpm-plugin serve in {folder / self.settings.FILE}"
            yield Installation(self.name, folder, None, True, how)

    def steps(self, found: Installation, tools: Tools, mode: Mode) -> Steps:
        """The file with our address.

        Raises:
            UserError: it cannot be written; then it says what to write by hand.
        """
        file, url = found.root / self.settings.FILE, address.url()
        trouble = address.trouble(url)
        try:
            old = read_bytes(file, MOST_BYTES) if file.is_file() else None
            text = old.decode() if old is not None else ""
            if self.settings.is_set(text, url):
                raise ValueError("it has our address already")
            content = self.settings.edited(text, url).encode()
        except (OSError, ValueError) as error:
            do = " ".join(forms.filled(self.sentences, url))
            raise UserError(f"cannot write {file}", str(error), f"by hand: {do}") from error
        expected = hashlib.sha256(old).hexdigest() if old is not None else None
        pick = (f"Choose one of SR-HPM's models in {self.title}; restart it if it shows none.",)
        return Steps(
            (WriteFile(file, content, expected=expected),), pick, (trouble,) if trouble else ()
        )

    def registered(self, found: Installation) -> bool:
        """Something of ours is in the file."""
        try:
            text = read_bytes(found.root / self.settings.FILE, MOST_BYTES).decode()
            return self.settings.without_us(text) != text
        except (OSError, ValueError):
            return False

    def without_us(self, path: Path, content: bytes) -> bytes | None:
        """See :class:`srhpm_plugin.host.TakesOut`."""
        try:
            return self.settings.without_us(content.decode()).encode()
        except ValueError:
            return None


CLIENTS: tuple[Host, ...] = (
    Client("anythingllm", "AnythingLLM", forms.ANYTHINGLLM),
    Client("home-assistant", "Home Assistant", forms.HOME_ASSISTANT),
    Client("open-webui", "Open WebUI", forms.OPEN_WEBUI),
    Client("openai", "programs with OpenAI's API", forms.OPENAI),
    FileClient("continue", "Continue", forms.CONTINUE, continue_),
    FileClient("vscode", "VS Code", forms.VSCODE, vscode),
    FileClient("zed", "Zed", forms.ZED, zed),
)


@hookimpl
def srhpm_hosts() -> Iterable[Host]:
    """The clients."""
    return CLIENTS

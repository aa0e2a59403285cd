"""Where operations may write: real paths, never out of the host's folder through a link."""

from __future__ import annotations

import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from ..errors import UserError


@dataclass(frozen=True)
class Places:
    """Turns the paths of operations into real ones.

    Attributes:
        root: the host's folder (or file); what lies below it as written must do so in fact.
    """

    root: Path

    def real(self, path: Path) -> Path:
        """``path`` with its folder resolved; the last part is kept, link or not.

        Raises:
            UserError: the name is none to write to.
        """
        text = str(path)
        if not path.is_absolute() or ".." in path.parts or "\0" in text or not path.name:
            raise UserError(f"cannot write {text!r}", "it is no absolute path of a file")
        if sys.platform == "win32" and any(map(_device, path.parts[1:])):
            raise UserError(f"cannot write {text!r}", "Windows keeps this name for a device")
        try:
            real = Path(os.path.realpath(path.parent)) / path.name
        except (OSError, ValueError) as error:
            raise UserError(f"cannot write {text!r}", str(error)) from None
        if path.is_relative_to(self.root):
            within = Path(os.path.realpath(self.root))
            if path != self.root and not real.is_relative_to(within):
                raise UserError(
                    f"cannot write {path}",
                    f"a link leads out of {self.root} to {real}",
                    "remove the link or name the real folder with --path",
                )
        return real


def temporary(path: Path) -> Path:
    """A name beside ``path`` that nobody else uses; short, as ``path``'s own may be long."""
    return path.with_name(f".srhpm-{secrets.token_hex(8)}.tmp")


def moved_since(path: Path) -> bool:
    """A folder of a real path has become a link since it was journaled."""
    return os.path.realpath(path.parent) != str(path.parent)


def _device(part: str) -> bool:
    reserved = getattr(os.path, "isreserved", None)  # Python 3.13
    return bool(reserved(part) if reserved else PureWindowsPath(part).is_reserved())

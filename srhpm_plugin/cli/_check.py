"""One finding of ``srhpm-plugin doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "broken"]


@dataclass(frozen=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        state: ``broken`` keeps something from working, a ``warning`` costs speed or may surprise.
        detail: what was found, in words.
        fix: a command to type, where one helps.
    """

    name: str
    state: State
    detail: str
    fix: str | None = None

    @property
    def ok(self) -> bool:
        """Neither broken nor a warning."""
        return self.state == "ok"

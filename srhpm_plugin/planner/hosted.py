"""The models of the hosts on this machine, under the names by which their users know them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import UserError
from ..host import HostModel
from ..model import ModelInfo

OFF = "SRHPM_HOSTED"
"""Set to ``off``, hosts are not asked for their models."""

_LATEST = ":latest"  # what Ollama's users leave out

# What files are called where their own names say nothing; filled as hosts are asked.
_called: dict[Path, str] = {}


@dataclass(frozen=True)
class Hosted:
    """A model of a host.

    Attributes:
        host: name of the host's plugin.
        model: as the plugin describes it.
    """

    host: str
    model: HostModel

    def answers_to(self, text: str) -> bool:
        """Whether a user may mean it by ``text``."""
        wanted = text.casefold()
        return self.model.name.casefold() in (wanted, wanted + _LATEST)


def hosted(only: str | None = None) -> tuple[tuple[Hosted, ...], tuple[str, ...]]:
    """The models of all hosts, or of one, and one line for each host that could not be asked.

    Raises:
        UserError: ``only`` is no host.
    """
    from ..install.state import copies
    from ..plugins import plugins

    if only is not None:
        hosts = {only: plugins().host(only)}
    elif os.environ.get(OFF) == "off":
        return (), ()
    else:
        hosts = plugins().hosts()
    found: dict[tuple[str, str, Path], Hosted] = {}
    troubles = []
    for name, host in hosts.items():
        try:
            for copy in copies(host):
                for model in host.models(copy):
                    # Two copies of a host may share one folder of models.
                    found.setdefault((name, model.name, model.path), Hosted(name, model))
        except (UserError, OSError) as error:
            troubles.append(f"the models of {name} cannot be listed: {error}")
    for one in found.values():
        remember(one.model.path, one.model.name)
    for one in found.values():  # a drafter that is a model of its own has its name by now
        if one.model.drafter is not None:
            remember(one.model.drafter, drafter_of(one.model.name))
    return tuple(found.values()), tuple(troubles)


def host_files() -> Iterator[Path]:
    """Files of the hosts' models that our server can run, and of drafters they have."""
    for one in hosted()[0]:
        if one.model.unfit is None:
            yield one.model.path
            if one.model.drafter is not None:
                yield one.model.drafter


def remember(path: Path, name: str) -> None:
    """Keeps what a host calls a file; the first of several names stays."""
    _called.setdefault(path, name)


def drafter_of(name: str) -> str:
    """What to call a drafter that has no name but its model's."""
    return f"{name} (drafter)"


def called(path: Path) -> str | None:
    """The name a host gave a file, if one was asked for its models."""
    return _called.get(path)


def label(path: Path) -> str:
    """What to call a file in front of its user: its host's name, else its own."""
    return called(path) or path.name


def title(model: ModelInfo) -> str:
    """What to call a model in front of its user: its host's name, else the one in its header."""
    return called(model.path) or model.name

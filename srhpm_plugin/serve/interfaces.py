"""What the parts of the embedded host are to one another: plain data and protocols.

``Catalog`` knows names, ``Scheduler`` lends engines, the API packages (``ollama/``, ``openai/``)
turn requests into leases and streams. None of them knows another's inside.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from ..launch.server import Progress
from ..plan import LaunchPlan
from .wire import Wire


@dataclass(frozen=True)
class ServedModel:
    """A model under one of the names by which clients may ask for it.

    Attributes:
        name: as clients write it, e.g. ``qwen3:27b``; Ollama's names keep their tag.
        path: the GGUF file.
        origin: the plugin of the host it belongs to, ``files`` or ``own`` (made by ``create``).
        digest: 64 hexadecimal digits that change when the model does. A store's own where it has
            one, else a hash of path, size and time: model files are never read whole for it.
        nbytes: of all its files.
        modified: when it last changed, with a time zone.
        drafter: a drafter that its store names.
        mmproj: its projector.
        adapters: LoRA files.
        ctx: context its store sets, tokens.
        template: a Go template that its store has; shown, never rendered.
        system: system message put first where a request has none.
        parameters: Ollama options that its store sets, e.g. ``temperature``, ``stop``.
        messages: turns put before those of a request (Ollama's ``MESSAGE``).
        licenses: texts.
        unfit: why our server cannot run it, in words; ``None`` when it can.
        parent: name of the model that ``create`` or ``copy`` made it from.
    """

    name: str
    path: Path
    origin: str
    digest: str
    nbytes: int
    modified: datetime
    drafter: Path | None = None
    mmproj: Path | None = None
    adapters: tuple[Path, ...] = ()
    ctx: int | None = None
    template: str | None = None
    system: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    licenses: tuple[str, ...] = ()
    unfit: str | None = None
    parent: str | None = None


@dataclass(frozen=True)
class Need:
    """How a request needs its model to be loaded; an engine serves equal needs.

    Attributes:
        ctx: tokens per slot (``num_ctx``); ``None`` leaves it to model and plan.
        embedding: for ``/v1/embeddings``; llama-server does these in a mode of its own.
        gpu_layers: ``num_gpu``.
        threads: ``num_thread``.
    """

    ctx: int | None = None
    embedding: bool = False
    gpu_layers: int | None = None
    threads: int | None = None


class Engine(Protocol):
    """A running server, lent to one request."""

    @property
    def model(self) -> ServedModel:
        """What it has loaded."""

    @property
    def plan(self) -> LaunchPlan:
        """How."""

    @property
    def load_seconds(self) -> float:
        """Seconds that this request waited for the model to load; 0 when it was there."""

    @property
    def http(self) -> Wire:
        """Talks to it. Cancelling a task that reads from it frees the slot."""


@dataclass(frozen=True)
class Loaded:
    """A loaded model, for ``/api/ps`` and the status page.

    Attributes:
        model, plan: what and how.
        need: as asked for.
        pid: of its server.
        since: when it was ready.
        expires: when it is unloaded if nobody asks for it; ``None``: never.
        active: requests that it is busy with.
        busy_limit: slots it has.
        restarts: how often it had to be started again after dying.
    """

    model: ServedModel
    plan: LaunchPlan
    need: Need
    pid: int
    since: datetime
    expires: datetime | None
    active: int
    busy_limit: int
    restarts: int = 0


class NoSuchModelError(Exception):
    """No model has that name; ``str()`` is the name."""


class BusyError(Exception):
    """Too many wait already; ``retry_after`` is in seconds."""

    def __init__(self, retry_after: int) -> None:
        super().__init__(f"busy, try again in {retry_after} s")
        self.retry_after = retry_after


class LoadError(Exception):
    """The model cannot be run; ``str()`` says why and what to do, in one line."""


class Catalog(Protocol):
    """Every model that can be asked for."""

    def all(self) -> Sequence[ServedModel]:
        """One entry per name, the newest first. Cheap: what stores hold is looked at again only
        when their folders changed or a few seconds have gone by."""

    def find(self, name: str) -> ServedModel:
        """The model a client means: its name exactly, with ``:latest`` left out, or the name of
        its file.

        Raises:
            NoSuchModelError: there is none.
        """

    def known(self, name: str) -> ServedModel | None:
        """The same at once; ``None`` also where folders would have to be looked at."""


async def find(catalog: Catalog, name: str) -> ServedModel:
    """See :meth:`Catalog.find`. Meanwhile others are answered, however slow the disk is; a model
    that is known costs no change of threads."""
    found = catalog.known(name)
    return await asyncio.to_thread(catalog.find, name) if found is None else found


class Scheduler(Protocol):
    """Loads, lends and unloads."""

    def lease(
        self,
        model: ServedModel,
        need: Need,
        *,
        keep_alive: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> AbstractAsyncContextManager[Engine]:
        """An engine for one request; entering waits for memory, for the load and for a slot.

        Args:
            model: what to load.
            need: how.
            keep_alive: seconds to stay loaded after the last use; negative for ever, 0 unloads at
                once, ``None`` is the default.
            on_progress: called in the event loop while it loads.

        Raises:
            BusyError: the queue is full.
            LoadError: it cannot be run.
        """

    def loaded(self) -> Sequence[Loaded]:
        """What is loaded now."""

    async def unload(self, model: ServedModel) -> bool:
        """Ends its engines once idle; whether there was one."""


class DigestMismatchError(Exception):
    """What was sent is not what its digest says; ``got`` is the digest of what came."""

    def __init__(self, got: str) -> None:
        super().__init__(f"the content has the digest {got}")
        self.got = got


class NotOursError(Exception):
    """The model belongs to a host or is a file of the user's; ``str()`` says what to type."""


class Store(Protocol):
    """Our own models: what ``create`` and ``copy`` make, and the blobs that clients send for it.

    A digest is 64 lower-case hexadecimal digits; callers have checked that.
    """

    def blob(self, digest: str) -> Path | None:
        """The file of a blob that is here."""

    async def receive(self, digest: str, content: AsyncIterable[bytes]) -> None:
        """Keeps a blob. Nothing is left of one that does not arrive whole.

        Raises:
            DigestMismatchError: it is another content; nothing is kept.
            OSError: the disk is full, or the like.
        """

    def save(self, name: str, model: ServedModel) -> ServedModel:
        """Makes ``model``, whose ``name``, ``origin``, ``digest`` and ``modified`` do not matter,
        a model of ours under ``name``, in place of one of ours that has it. Its files stay where
        they are, and none is copied. The catalog knows it at once.

        Raises:
            OSError: it cannot be written.
        """

    def delete(self, model: ServedModel) -> None:
        """Forgets a model of ours, and the blobs that no other needs.

        Raises:
            NotOursError: it is not ours to delete.
            OSError: it cannot be deleted.
        """

"""Catalog, scheduler and store of make-believe, for tests of the routes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from srhpm_plugin.launch.server import Progress
from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import Draft, LaunchPlan, MemoryUse, Placement, Predicted
from srhpm_plugin.serve.interfaces import (
    BusyError,
    DigestMismatchError,
    Engine,
    Loaded,
    LoadError,
    Need,
    NoSuchModelError,
    NotOursError,
    ServedModel,
)
from srhpm_plugin.serve.wire import Wire

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def served(name: str = "fake:latest", path: Path = Path("/models/fake.gguf"), **more: Any) -> Any:
    """A model; ``more`` are fields of :class:`ServedModel`."""
    fields = {"origin": "ollama", "digest": "a" * 64, "nbytes": 4321, "modified": THEN} | more
    return ServedModel(name=name, path=path, **fields)


def plan_of(path: Path) -> LaunchPlan:
    """A plan for a model that is not there."""
    model = ModelInfo(
        path=path,
        parts=(path,),
        arch="llama",
        name="Fake",
        n_params=1_000_000,
        nbytes=4321,
        quant_mix={"Q4_K": 4321},
        n_layer=2,
        n_ctx_train=4096,
        n_embd=64,
        n_ff=128,
        n_head=(4, 4),
        n_head_kv=(4, 4),
        key_length=16,
        value_length=16,
        n_vocab=100,
        n_expert=0,
        n_expert_used=0,
        n_mtp_layers=0,
        sliding_window=0,
        recurrent=None,
        tokenizer=None,
        tensors=(),
    )
    return LaunchPlan(
        kind="srhpm",
        backend="srhpm",
        model=model,
        draft=Draft("ngram", None, 0, 7, 0.0),
        draft_off_reason=None,
        ctx=4096,
        parallel=1,
        threads=2,
        gpu_layers=0,
        placement=(Placement("CPU", ("embd", "0-1", "output"), 4321),),
        memory=(MemoryUse("CPU", weights=4321, kv=1000, compute=100, free=1 << 30),),
        predicted=Predicted(),
        reasons=("srhpm: no GPU",),
    )


@dataclass
class FakeCatalog:
    """A catalog of ``models``."""

    models: list[ServedModel] = field(default_factory=lambda: [served()])

    def all(self) -> Sequence[ServedModel]:
        return sorted(self.models, key=lambda m: m.modified, reverse=True)

    def find(self, name: str) -> ServedModel:
        found = self.known(name)
        if found is None:
            raise NoSuchModelError(name)
        return found

    def known(self, name: str) -> ServedModel | None:
        named = (m for m in self.models if m.name in (name, f"{name}:latest"))
        return next(named, None)


@dataclass(frozen=True)
class LentEngine:
    """See :class:`srhpm_plugin.serve.interfaces.Engine`."""

    model: ServedModel
    plan: LaunchPlan
    load_seconds: float
    http: Wire


@dataclass
class FakeScheduler:
    """Lends the fake engine at once. ``error`` is raised instead; ``progress`` is reported first.

    ``leases`` has what was asked for, ``active`` how many are lent now, ``unloaded`` the names.
    """

    url: str
    error: BusyError | LoadError | None = None
    progress: Sequence[Progress] = ()
    load_seconds: float = 0.25
    leases: list[tuple[ServedModel, Need, float | None]] = field(default_factory=list)
    active: int = 0
    unloaded: list[str] = field(default_factory=list)
    resident: list[Loaded] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def lease(
        self,
        model: ServedModel,
        need: Need,
        *,
        keep_alive: float | None = None,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> AsyncIterator[Engine]:
        self.leases.append((model, need, keep_alive))
        if on_progress is not None:
            for step in self.progress:
                on_progress(step)
        if self.error is not None:
            raise self.error
        self.active += 1
        try:
            url = urlsplit(self.url)
            wire = Wire(url.hostname or "", url.port or 0)
            yield LentEngine(model, plan_of(model.path), self.load_seconds, wire)
        finally:
            self.active -= 1

    def loaded(self) -> Sequence[Loaded]:
        return tuple(self.resident)

    async def unload(self, model: ServedModel) -> bool:
        self.unloaded.append(model.name)
        return any(one.model.name == model.name for one in self.resident)


@dataclass
class FakeStore:
    """Keeps models in the catalog and blobs in a folder."""

    catalog: FakeCatalog
    folder: Path

    def blob(self, digest: str) -> Path | None:
        path = self.folder / digest
        return path if path.is_file() else None

    async def receive(self, digest: str, content: Any) -> None:
        data = b"".join([chunk async for chunk in content])
        got = sha256(data).hexdigest()
        if got != digest:
            raise DigestMismatchError(got)
        (self.folder / digest).write_bytes(data)

    def save(self, name: str, model: ServedModel) -> ServedModel:
        ours = replace(model, name=name, origin="own", digest=sha256(name.encode()).hexdigest())
        self.catalog.models = [m for m in self.catalog.models if m.name != name] + [ours]
        return ours

    def delete(self, model: ServedModel) -> None:
        if model.origin != "own":
            raise NotOursError(f"{model.name} belongs to {model.origin}")
        self.catalog.models.remove(model)

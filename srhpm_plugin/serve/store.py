"""Our own models: one small file each beside the blobs that clients sent.

``models/HEX.json`` is named by the hash of the model's name, so no name ever becomes a path, and
two names that differ in case stay two on every system. ``blobs/sha256-HEX`` is named by its
content.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import home
from ..untrusted import items, read_json, text
from .interfaces import DigestMismatchError, NotOursError, ServedModel
from .sizes import model_bytes

OWN = "own"
_DIGEST = re.compile(r"[0-9a-f]{64}")
_FRESH_S = 5.0
_KEPT_S = 86_400.0
_MOST_JSON = 16 << 20  # a licence or two, and messages


class OwnStore:
    """See :class:`.interfaces.Store`.

    Args:
        root: its folder, by default among our data; made when something is kept.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = root or home.data_dir() / "serve"
        self._blobs = self.root / "blobs"
        self._models = self.root / "models"
        self._known: tuple[float, int, tuple[ServedModel, ...]] | None = None

    # -- blobs ---------------------------------------------------------------------------------

    def blob(self, digest: str) -> Path | None:
        """See :meth:`.interfaces.Store.blob`."""
        path = self._blob_path(digest)
        return path if path.is_file() else None

    async def receive(self, digest: str, content: AsyncIterable[bytes]) -> None:
        """See :meth:`.interfaces.Store.receive`."""
        path = self._blob_path(digest)
        self._blobs.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix="incoming-", dir=self._blobs)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                got = sha256()
                async for chunk in content:
                    await asyncio.to_thread(_take, file.write, got.update, chunk)
                file.flush()
                await asyncio.to_thread(os.fsync, file.fileno())
            if got.hexdigest() != digest:
                raise DigestMismatchError(got.hexdigest())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

    def _blob_path(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):  # the last line of defence: it becomes a path
            raise ValueError("no digest")
        return self._blobs / f"sha256-{digest}"

    # -- models --------------------------------------------------------------------------------

    def save(self, name: str, model: ServedModel) -> ServedModel:
        """See :meth:`.interfaces.Store.save`."""
        self._models.mkdir(parents=True, exist_ok=True)
        data = {
            "name": name,
            "path": str(model.path),
            "drafter": _text(model.drafter),
            "mmproj": _text(model.mmproj),
            "adapters": [str(path) for path in model.adapters],
            "ctx": model.ctx,
            "template": model.template,
            "system": model.system,
            "parameters": dict(model.parameters),
            "messages": [dict(message) for message in model.messages],
            "licenses": list(model.licenses),
            "parent": model.parent,
        }
        content = json.dumps(data, indent=1, sort_keys=True).encode()
        path = self._model_path(name)
        handle, part = tempfile.mkstemp(prefix="new-", dir=self._models)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(part).replace(path)
        except BaseException:
            Path(part).unlink(missing_ok=True)
            raise
        self._known = None
        return _model(path)

    def delete(self, model: ServedModel) -> None:
        """See :meth:`.interfaces.Store.delete`."""
        if model.origin != OWN:
            whose = "a file of yours" if model.origin == "files" else f"a model of {model.origin}"
            raise NotOursError(f"{model.name} is {whose}: delete it there")
        self._model_path(model.name).unlink(missing_ok=True)
        self._known = None
        needed = {path for one in self.models() for path in _files(one)}
        for path in _files(model):
            if path.parent == self._blobs and path not in needed:
                # A server that has it open keeps it on Windows: then it goes another time.
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)

    def models(self) -> Sequence[ServedModel]:
        """All of them; those whose files are gone say so. Asked for with each request, so read
        again only when the folder has changed or after some seconds."""
        try:
            stamp = self._models.stat().st_mtime_ns
        except OSError:
            return ()
        now = time.monotonic()
        if self._known is None or self._known[1] != stamp or now - self._known[0] > _FRESH_S:
            self._known = (now, stamp, tuple(self._read()))
        return self._known[2]

    def prune(self) -> None:
        """Removes what no model needs: uploads that never became one, a day old or more."""
        needed = {path for one in self.models() for path in _files(one)}
        with contextlib.suppress(OSError):
            for path in self._blobs.iterdir():
                old = time.time() - path.stat().st_mtime > _KEPT_S
                if old and path not in needed and path.name.startswith(("sha256-", "incoming-")):
                    path.unlink(missing_ok=True)

    def _read(self) -> Iterator[ServedModel]:
        for path in sorted(self._models.glob("*.json")):
            with contextlib.suppress(OSError, ValueError, TypeError):
                yield _model(path)

    def _model_path(self, name: str) -> Path:
        return self._models / f"{sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}.json"


def _take(write: Any, update: Any, chunk: bytes) -> None:
    update(chunk)
    write(chunk)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _files(model: ServedModel) -> tuple[Path, ...]:
    extra = (model.drafter, model.mmproj, *model.adapters)
    return (model.path, *(path for path in extra if path is not None))


def _model(file: Path) -> ServedModel:
    """What a file says.

    Raises:
        ValueError, OSError: it is damaged.
    """
    data = read_json(file, _MOST_JSON)
    name, path = text(data, "name"), text(data, "path")
    if not name or not path:
        raise ValueError("it names no model")
    parameters = data.get("parameters")
    ctx = data.get("ctx")
    model = ServedModel(
        name=name,
        path=Path(path),
        origin=OWN,
        digest=sha256(file.read_bytes()).hexdigest(),
        nbytes=0,
        modified=datetime.fromtimestamp(file.stat().st_mtime, timezone.utc),
        drafter=_path(data, "drafter"),
        mmproj=_path(data, "mmproj"),
        adapters=tuple(Path(p) for p in items(data, "adapters") if isinstance(p, str)),
        ctx=ctx if isinstance(ctx, int) and ctx > 0 else None,
        template=text(data, "template"),
        system=text(data, "system"),
        parameters=parameters if isinstance(parameters, Mapping) else {},
        messages=tuple(m for m in items(data, "messages") if isinstance(m, dict)),
        licenses=tuple(t for t in items(data, "licenses") if isinstance(t, str)),
        parent=text(data, "parent"),
    )
    missing = next((p for p in _files(model) if not p.is_file()), None)
    unfit = None if missing is None else f"its file {missing} is gone; create it anew"
    return replace(model, nbytes=sum(map(model_bytes, _files(model))), unfit=unfit)


def _path(data: object, key: str) -> Path | None:
    found = text(data, key)
    return Path(found) if found else None

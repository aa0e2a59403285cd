"""Every model that can be asked for: our own, those of all hosts, and files in known folders."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from hashlib import sha256
from pathlib import Path

from ..errors import UserError
from ..host import ModelWords
from ..planner.hosted import Hosted, hosted
from ..planner.names import repository, short_name
from ..planner.sources import survey
from .interfaces import NoSuchModelError, ServedModel
from .sizes import model_bytes
from .store import OwnStore

FILES = "files"
_FRESH_S = 5.0  # a listing may be this old
_AGAIN_S = 1.0  # a name that is not known is looked for at most this often
_LATEST = ":latest"
_BLOB = re.compile(r"sha256[-:]([0-9a-f]{64})")

Look = Callable[[], tuple[Sequence[Hosted], Sequence[Path], Sequence[str]]]


def look() -> tuple[Sequence[Hosted], Sequence[Path], Sequence[str]]:
    """Hosts' models, model files, and what could not be looked at, one line each."""
    models, troubles = hosted()
    try:
        files: Sequence[Path] = survey().models
    except UserError as error:  # a damaged configuration
        files, troubles = (), (*troubles, error.line())
    return models, files, troubles


class ModelCatalog:
    """See :class:`.interfaces.Catalog`.

    Stores are looked at in another thread when what is known is some seconds old, so listings never
    wait for a slow disk; only a name that is not known does. Our own models are always up to date.

    Args:
        store: our own models.
        look: looks at hosts and folders.
    """

    def __init__(self, store: OwnStore, look: Look = look) -> None:
        self._store = store
        self._look = look
        self._lock = threading.Lock()
        self._looked = -1e9
        self._looking = False
        self._others: tuple[ServedModel, ...] = ()
        self._troubles: tuple[str, ...] = ()

    @property
    def troubles(self) -> Sequence[str]:
        """Hosts and folders that could not be looked at, one line each."""
        self._refresh()
        return self._troubles

    def all(self) -> Sequence[ServedModel]:
        """See :meth:`.interfaces.Catalog.all`."""
        self._refresh()
        return sorted(self._named().values(), key=lambda m: (m.modified, m.name), reverse=True)

    def find(self, name: str) -> ServedModel:
        """See :meth:`.interfaces.Catalog.find`."""
        self._refresh()
        found = _match(name, self._named())
        if found is None and time.monotonic() - self._looked > _AGAIN_S:
            self._look_now()
            found = _match(name, self._named())
        if found is None:
            raise NoSuchModelError(name)
        return found

    def known(self, name: str) -> ServedModel | None:
        """See :meth:`.interfaces.Catalog.known`."""
        if self._looked < 0:  # never yet
            return None
        self._refresh()
        return _match(name, self._named())

    def _named(self) -> Mapping[str, ServedModel]:
        """By name; our own come first, and hide a host's or a file's of the same name."""
        named: dict[str, ServedModel] = {}
        for model in (*self._store.models(), *self._others):
            named.setdefault(model.name, model)
        return named

    # -- looking -------------------------------------------------------------------------------

    def _refresh(self) -> None:
        age = time.monotonic() - self._looked
        if age > 1e6:
            self._look_now()  # never yet
        elif age > _FRESH_S and not self._looking:
            self._looking = True
            threading.Thread(target=self._look_now, name="srhpm-catalog", daemon=True).start()

    def _look_now(self) -> None:
        try:
            with self._lock:
                hosts, files, troubles = self._look()
                self._others = tuple(_served(hosts, files))
                self._troubles = tuple(troubles)
                self._looked = time.monotonic()
        finally:
            self._looking = False


def _match(name: str, named: Mapping[str, ServedModel]) -> ServedModel | None:
    for wanted in (name, name + _LATEST, name.removesuffix(_LATEST)):
        if wanted in named:
            return named[wanted]
    folded = name.casefold()
    wanted_names = {folded, folded + _LATEST, folded.removesuffix(_LATEST)}
    for model in named.values():
        if model.name.casefold() in wanted_names or model.path.name.casefold() == folded:
            return model
    return None


def _served(hosts: Iterable[Hosted], files: Iterable[Path]) -> Iterable[ServedModel]:
    taken: set[str] = set()
    known: set[Path] = set()
    for one in hosts:
        known.add(one.model.path)
        name = one.model.name if one.model.name not in taken else f"{one.host}/{one.model.name}"
        if name not in taken:
            taken.add(name)
            yield _of_host(one, name)
    for path in files:
        if path not in known:
            name = _free_name(path, taken)
            taken.add(name)
            yield _of_file(path, name)


def _free_name(path: Path, taken: set[str]) -> str:
    """The file's, longer where that is another's."""
    short = short_name(path)
    repo = repository(path)
    longer = f"{repo}/{short}" if repo else f"{path.parent.name}/{short}"
    for name in (short, longer):
        if name not in taken:
            return name
    return f"{longer}-{_stamp(path)[:8]}"


def _of_host(one: Hosted, name: str) -> ServedModel:
    model = one.model
    extra = (model.drafter, model.mmproj, *model.adapters)
    words = model.words or ModelWords(_digest(model.path), _modified(model.path))
    return ServedModel(
        name=name,
        path=model.path,
        origin=one.host,
        digest=words.digest,
        nbytes=sum(model_bytes(path) for path in (model.path, *extra) if path is not None),
        modified=_time(words.modified),
        drafter=model.drafter,
        mmproj=model.mmproj,
        adapters=model.adapters,
        ctx=model.ctx,
        template=words.template,
        system=words.system,
        parameters=words.parameters,
        messages=words.messages,
        licenses=words.licenses,
        unfit=model.unfit,
    )


def _of_file(path: Path, name: str) -> ServedModel:
    return ServedModel(
        name=name,
        path=path,
        origin=FILES,
        digest=_stamp(path),
        nbytes=model_bytes(path),
        modified=_time(_modified(path)),
    )


def _stamp(path: Path) -> str:
    """Changes when the file does; it is not read for this."""
    try:
        info = path.stat()
        said = f"{path}\0{info.st_size}\0{info.st_mtime_ns}"
    except OSError:
        said = str(path)
    return sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _digest(path: Path) -> str:
    blob = _BLOB.fullmatch(path.name)
    return blob[1] if blob else _stamp(path)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc)
    except (OSError, ValueError, OverflowError):
        return datetime.fromtimestamp(0, timezone.utc)

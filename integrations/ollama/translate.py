"""What a start by Ollama means: its arguments have neither the model's name nor its drafters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import HandOver, HostCall, Translated
from srhpm_plugin.plan import HostRequest
from srhpm_plugin.planner.headers import read_header
from srhpm_plugin.planner.hosted import drafter_of, remember

from . import twins
from .compat import former_format
from .names import marks_twin
from .store import Entry, Store

_DRAFT = "--spec-draft-model"


def translate(call: HostCall, request: HostRequest) -> Translated | HandOver:
    """The model's name, whether it is a twin, and smaller models that may draft for it.

    Raises:
        UserError: the model cannot be read.
    """
    if "--embedding" in call.argv:
        return HandOver("an embedding model: it generates no text")
    batch = _value(call.argv, "-b")
    twin = batch is not None and batch.isdecimal() and marks_twin(int(batch))
    store = Store.of_blob(request.model)
    entries = tuple(store.entries()) if store else ()
    names = [e for e in entries if e.model is not None and e.model.name == request.model.name]
    entry = _entry(names, call, request, twin)
    name = str(entry.name) if entry else request.model.name
    if call.mode == "select" and not twin:
        return Translated(request, name)
    why = _only_ollamas(request)
    if why is not None:
        return HandOver(why)
    for other in entries:
        if other.model is not None:
            remember(other.model, str(other.name))
    for other in entries:
        if other.draft is not None:
            remember(other.draft, drafter_of(str(other.name)))
    return Translated(
        request=_with_draft(call, request, entry),
        model=name,
        drafters=_drafters(entries, request.model),
        picked=twin,
        # A twin's batch is a mark, not a wish.
        overruled=("-b", "-ub") if twin else (),
        rests_on=tuple(e.manifest for e in names),
    )


def _only_ollamas(request: HostRequest) -> str | None:
    """Why only Ollama's own server can load the model."""
    if request.mmproj is not None and _same(request.mmproj, request.model):
        return "its projector lies in the model's own file, as only Ollama reads it"
    return former_format(read_header(request.model))


def _value(argv: tuple[str, ...], option: str) -> str | None:
    """The last value of an option."""
    values = _values(argv, option)
    return values[-1] if values else None


def _values(argv: tuple[str, ...], option: str) -> list[str]:
    return [argv[i + 1] for i, word in enumerate(argv[:-1]) if word == option]


def _same(a: Path, b: Path) -> bool:
    try:
        return a.samefile(b)
    except OSError:
        return a == b


def _entry(
    names: Collection[Entry], call: HostCall, request: HostRequest, twin: bool
) -> Entry | None:
    """What a blob was started as. Several names may share it: the one whose parameters and files
    are those of this start, as far as they are different."""
    if not names:
        return None
    batch = _value(call.argv, "-b") or ""
    started = {
        "num_ctx": request.ctx,
        "num_batch": int(batch) if batch.isdecimal() else None,
        "num_thread": request.threads,
        "num_gpu": request.gpu_layers,
    }

    given = {flag: _values(call.argv, flag) for flag in ("--lora", "--mmproj", _DRAFT)}

    def fit(entry: Entry) -> tuple[bool, int]:
        said: list[tuple[object, object]] = [
            (entry.params[k], v) for k, v in started.items() if k in entry.params
        ]
        said += [(_names(files), _names(given[flag])) for flag, files in _files(entry).items()]
        # A request's own options win over its model's: what differs speaks against, no more.
        return twins.is_twin(entry) == twin, sum(1 if a == b else -1 for a, b in said)

    return max(names, key=fit)


def _files(entry: Entry) -> dict[str, tuple[Path, ...]]:
    """The files beside the model that Ollama starts it with; a ``DRAFT`` may be switched off."""
    files = {"--lora": entry.adapters, "--mmproj": (entry.projector,) if entry.projector else ()}
    return {**files, _DRAFT: (entry.draft,)} if entry.draft else files


def _names(files: Iterable[Path | str]) -> set[str]:
    return {Path(file).name for file in files}


def _drafters(entries: Iterable[Entry], model: Path) -> tuple[Path, ...]:
    """Smaller models of the store, smallest first."""
    try:
        own = model.stat().st_size
        sized = {e.model: e.model.stat().st_size for e in entries if e.model is not None}
    except OSError:
        return ()
    return tuple(sorted((p for p, n in sized.items() if n < own), key=lambda p: (sized[p], p)))


def _with_draft(call: HostCall, request: HostRequest, entry: Entry | None) -> HostRequest:
    """What the model's maker said of drafting and Ollama's arguments do not tell.

    ``draft_num_predict 0`` reaches the server as silence. A ``DRAFT`` of the common kind is started
    as ``draft-mtp``, as Ollama knows nothing else: here it drafts as what it is.
    """
    kind = _value(call.argv, "--spec-type")
    if kind is None:
        off = entry is not None and entry.params.get("draft_num_predict") == 0
        return replace(request, draft="none") if off else request
    named = _value(call.argv, _DRAFT)
    if named is None or kind != "draft-mtp":
        return request
    try:
        drafter = read_header(Path(named))
    except UserError:
        return request
    plain = drafter.tokenizer is not None and not drafter.n_mtp_layers
    return replace(request, draft=named) if plain else request

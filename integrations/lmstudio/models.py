"""LM Studio's models: files below the models folder, virtual models, and what users saved for them.

Facts: ``<models>/<publisher>/<repository>/<file>.gguf``, projectors beside them as ``mmproj*``;
``hub/models/<publisher>/<name>/model.yaml`` describes a virtual model over such files (documented,
"model.yaml"); the load settings saved for a model are the ``load.fields`` of
``user-concrete-model-default-config/<identifier>.json``, where the identifier is the file's path
below the models folder, or the virtual model's name. Field names: lmstudio.js, ``llm.load.*``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srhpm_plugin.host import HostModel
from srhpm_plugin.planner.search import Found, collect, kind_of
from srhpm_plugin.untrusted import inside, items, member, read_json, read_yaml, text

from .places import defaults_folders, models_folder

_CONTEXT = "llm.load.contextLength"
_DRAFT = "llm.load.llama.speculativeDecoding."
_MOST_CONTEXT = 1 << 24
_MOST_VIRTUAL = 1000
_MOST_BASES = 50


def models(home: Path) -> Iterator[HostModel]:
    """Every model, by the identifier LM Studio knows it under."""
    root = models_folder(home)
    found = Found()
    collect(root, 4, found)
    for path in found.models.values():
        name = identifier(root, path)
        # A model may be a link to wherever the user keeps it (`lms import -l`).
        if name is not None:
            yield _model(home, root, name, path, {})
    virtual = _virtual(home)
    for name, data in virtual.items():
        file = _file(root, data, virtual, {name})
        if file is not None:
            yield _model(home, root, name, file, _fields(member(data, "config")))


def identifier(root: Path, path: Path) -> str | None:
    """The identifier of a file below the models folder; ``None`` for one that lies elsewhere."""
    try:
        return path.relative_to(root).as_posix()
    except ValueError:
        return None


def saved(home: Path, name: str) -> dict[str, Any]:
    """The load settings that the user saved for a model."""
    for folder in defaults_folders(home):
        path = inside(folder, f"{name}.json")
        try:
            return _fields(read_json(path)) if path else {}
        except (OSError, ValueError):
            continue
    return {}


def drafter(root: Path, fields: Mapping[str, Any]) -> Path | None:
    """The draft model that the settings name, if it is there."""
    name = fields.get(_DRAFT + "draftModel")
    path = inside(root, name) if isinstance(name, str) else None
    return path if path is not None and path.is_file() else None


def _model(home: Path, root: Path, name: str, path: Path, defaults: Mapping[str, Any]) -> HostModel:
    fields = {**defaults, **saved(home, name)}
    ctx = fields.get(_CONTEXT)
    return HostModel(
        name=name,
        path=path,
        drafter=drafter(root, fields),
        mmproj=_projector(path.parent),
        ctx=ctx if isinstance(ctx, int) and 0 < ctx <= _MOST_CONTEXT else None,
    )


def _fields(config: object) -> dict[str, Any]:
    """``load.fields`` as a mapping; a field may be a value or a box that is checked or not."""
    result: dict[str, Any] = {}
    for entry in items(config, "load", "fields"):
        key, value = text(entry, "key"), member(entry, "value")
        if isinstance(value, dict) and "checked" in value:
            if value["checked"] is not True:
                continue
            value = value.get("value")
        if key is not None and value is not None and not isinstance(value, bool):
            result[key] = value
    return result


def _projector(folder: Path) -> Path | None:
    try:
        found = sorted(
            path
            for path in folder.iterdir()
            if path.name.lower().startswith("mmproj") and path.suffix.lower() == ".gguf"
        )
    except OSError:
        return None
    return found[0] if found else None


def _virtual(home: Path) -> dict[str, Mapping[str, Any]]:
    """Descriptions of virtual models by name; those that cannot be read are left out."""
    found: dict[str, Mapping[str, Any]] = {}
    hub = home / "hub" / "models"
    try:
        paths = sorted(hub.glob("*/*/model.yaml"))[:_MOST_VIRTUAL]
    except OSError:
        return found
    for path in paths:
        name = path.parent.relative_to(hub).as_posix()
        if inside(hub, f"{name}/model.yaml") is None:
            continue
        try:
            data = read_yaml(path)
        except (OSError, ValueError):
            continue
        # The folder names it; a description that calls itself otherwise would pass for another.
        if isinstance(data, dict) and data.get("model") == name:
            found[name] = data
    return found


def _file(
    root: Path, data: Mapping[str, Any], virtual: Mapping[str, Mapping[str, Any]], seen: set[str]
) -> Path | None:
    """The first file at hand among those that a virtual model may stand for.

    Args:
        seen: virtual models looked at; each is once, or descriptions of each other would take ages.
    """
    base = data.get("base")
    keys = [base] if isinstance(base, str) else [text(e, "key") for e in items(data, "base")]
    for key in keys[:_MOST_BASES]:
        if not key:
            continue
        if key in virtual and key not in seen:
            seen.add(key)
            file = _file(root, virtual[key], virtual, seen)
            if file is not None:
                return file
        place = inside(root, key)
        if place is None:
            continue
        if place.is_file() and kind_of(place) == "model":
            return place
        found = Found()
        collect(place, 1, found)
        if found.models:
            return next(iter(found.models.values()))
    return None

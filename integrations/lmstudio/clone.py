"""The steps that make a pack of ours out of one of LM Studio's.

Nothing of LM Studio's is shipped or changed: its files are linked (or copied) from the pack that
the user installed into a second one, which differs in three descriptions and in the folder
``srhpm`` with the drop-in. LM Studio's own server stays in the clone: the drop-in hands over to it.

The manifest is written last and removed first: LM Studio takes a folder for a pack when it has one,
so a half-made pack is none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from srhpm_plugin.dropin.note import Note
from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Mode, Tools, dropin_files
from srhpm_plugin.install.linked import linked
from srhpm_plugin.install.operations import MakeFolder, Operation, Run, WriteFile
from srhpm_plugin.untrusted import inside, items, parse_json, read_bytes, read_json, text

from .pack import ARTIFACTS, DISPLAY, FOLDER, MANIFEST, SUFFIX, Pack, selected
from .places import lms, preferences


def place(pack: Pack) -> Path:
    """Where the clone of a pack goes."""
    return pack.folder.with_name(f"{pack.name}{SUFFIX}-{pack.version}")


def dropin(pack: Pack) -> str:
    """The drop-in in a clone, relative to it, as manifests write it."""
    return f"{FOLDER}/{pack.server}"


def clone(home: Path, pack: Pack, tools: Tools, mode: Mode, host: str) -> Iterator[Operation]:
    """Everything but the selection.

    Raises:
        UserError: the pack has something in it that cannot be cloned.
    """
    target = place(pack)
    assert pack.server is not None
    if (pack.folder / FOLDER).exists():
        raise _odd(pack.folder, f"it has a folder {FOLDER!r} already")
    try:
        yield from linked(pack.folder, target, (MANIFEST, ARTIFACTS, DISPLAY))
    except (OSError, ValueError) as error:
        raise _odd(pack.folder, str(error)) from error
    yield MakeFolder(target / FOLDER)
    yield from dropin_files(
        target / FOLDER / pack.server,
        host,
        Path("..", pack.server),
        tools,
        mode,
        {
            "source": pack.label,
            "gpu": pack.gpu or "",
            "home": str(home),
            "startup_error": "LMSTUDIO_STARTUP_ERROR:",
        },
    )
    for name, content in (
        (ARTIFACTS, _artifacts(pack)),
        (DISPLAY, _display(pack)),
        (MANIFEST, _manifest(pack)),  # last, see above
    ):
        if content is not None:
            yield WriteFile(target / name, content)


def select(home: Path, pack: Pack) -> Iterator[Operation]:
    """Selects the clone: through ``lms`` where it is, else in the file it keeps its choice in."""
    before = selected(home)
    name = f"{pack.name}{SUFFIX}"
    if before and before.name == name and before.version == pack.version:
        return
    program = lms(home)
    if program:
        yield Run(
            (str(program), "runtime", "select", f"{name}@{pack.version}"),
            "select the runtime in LM Studio",
            (str(program), "runtime", "select", before.label) if before else None,
        )
        return
    path = preferences(home)
    if not path:
        return
    try:
        old = read_bytes(path)
        entries = parse_json(old)
    except (OSError, ValueError):
        return
    if not isinstance(entries, list):
        return
    ours = {"model_format": "gguf", "name": name, "version": pack.version}
    kept = [entry for entry in entries if text(entry, "model_format") != "gguf"]
    new = _json([*kept, ours], indent=None)
    yield WriteFile(path, new, expected=hashlib.sha256(old).hexdigest())


def without_us(content: bytes) -> bytes | None:
    """The file of selected runtimes less ours; ``None`` if it is no such file."""
    try:
        entries = parse_json(content)
    except ValueError:
        return None
    if not isinstance(entries, list):
        return None
    kept = [entry for entry in entries if not (text(entry, "name") or "").endswith(SUFFIX)]
    return content if len(kept) == len(entries) else _json(kept, indent=None)


def source_of(clone: Pack) -> str | None:
    """The pack that a clone was made of, from the note of its drop-in."""
    place = inside(clone.folder, clone.server or "")
    try:
        note = Note.parse(read_bytes(Note.path_for(place), 65536)) if place else None
    except (OSError, ValueError):
        return None
    return note.facts.get("source") if note else None


def _odd(folder: Path, why: str) -> UserError:
    return UserError(
        f"cannot clone {folder}", why, "install LM Studio's runtime again: Settings > Runtime"
    )


def _manifest(pack: Pack) -> bytes:
    server = {
        **pack.manifest["engine_protocol_server"],
        "executable_relative_path": dropin(pack),
    }
    return _json(
        {**pack.manifest, "name": f"{pack.name}{SUFFIX}", "engine_protocol_server": server}
    )


def _artifacts(pack: Pack) -> bytes | None:
    data = _beside(pack, ARTIFACTS)
    if data is None:
        return None
    assert pack.server is not None
    ours = [
        {"relative_path": dropin(pack), "executable": True},
        {"relative_path": Note.path_for(Path(dropin(pack))).as_posix(), "executable": False},
    ]
    files = [*items(data, "files"), *ours]
    return _json({**data, "executable_relative_path": dropin(pack), "files": files})


def _display(pack: Pack) -> bytes | None:
    """The texts of every language, named so that the two runtimes can be told apart."""
    path = inside(pack.folder, DISPLAY)
    try:
        data = read_json(path) if path else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _odd(pack.folder, f"{DISPLAY}: {error}") from error
    if not isinstance(data, list):
        raise _odd(pack.folder, f"{DISPLAY} has another form")
    return _json([[e[0], _described(e[1], pack), *e[2:]] if _pair(e) else e for e in data])


def _pair(entry: object) -> bool:
    return isinstance(entry, list) and len(entry) >= 2 and isinstance(entry[1], dict)


def _described(entry: Mapping[str, Any], pack: Pack) -> dict[str, Any]:
    title = text(entry, "displayName") or pack.name
    return {
        **entry,
        "displayName": f"SR-HPM · {title}",
        "description": "Speculative decoding for models bigger than the GPU. "
        f"Hands over to {title} {pack.version} whenever that is faster.",
        "releaseNotes": [
            {"version": pack.version, "releaseNotes": "Made and removed by srhpm-plugin."}
        ],
    }


def _beside(pack: Pack, name: str) -> dict[str, Any] | None:
    path = inside(pack.folder, name)
    try:
        data = read_json(path) if path else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _odd(pack.folder, f"{name}: {error}") from error
    if not isinstance(data, dict):
        raise _odd(pack.folder, f"{name} has another form")
    return data


def _json(data: object, indent: int | None = 2) -> bytes:
    # Lone surrogates can be read from JSON; escaped they can be written again.
    return json.dumps(data, indent=indent, ensure_ascii=True).encode()

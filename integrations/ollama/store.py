"""Ollama's model store: manifests, and the blobs they name. None of it is trusted.

Layout and media types: Ollama's ``manifest/paths.go``, ``manifest/manifest.go``,
``types/model/config.go`` and ``server/images.go`` (``GetModel``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from srhpm_plugin.host import ModelWords
from srhpm_plugin.untrusted import inside, items, parse_json, read_bytes, read_json, text

from .names import Name

_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_KIND = "application/vnd.ollama.image."
_WORDS = ("template", "prompt", "system", "params", "messages", "license")
_MOST_LAYERS = 4096  # safetensors models have a layer for each tensor
_MOST_MANIFESTS = 10_000
_MOST_JSON = 1 << 20


class Damaged(Exception):
    """A manifest that cannot be used, with the reason in words."""


@dataclass(frozen=True)
class Entry:
    """A model of the store.

    Attributes:
        name: its full name.
        manifest: the file.
        model: the GGUF blob; ``None`` where there is none to run.
        draft: the model's ``DRAFT``.
        projector: its first projector, the only one that Ollama uses.
        adapters: its LoRA files.
        params: its ``PARAMETER`` lines.
        unfit: why no llama-server can run it here; ``None`` when one can.
        damaged: ``unfit`` says what is wrong with the store.
        words: the rest of what the store says of it.
    """

    name: Name
    manifest: Path
    model: Path | None = None
    draft: Path | None = None
    projector: Path | None = None
    adapters: tuple[Path, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    unfit: str | None = None
    damaged: bool = False
    words: ModelWords | None = None

    @property
    def same_as(self) -> tuple[object, ...]:
        """Equal for two names of the same thing."""
        parameters = tuple(sorted((k, repr(v)) for k, v in self.params.items()))
        return (self.model, self.draft, self.projector, self.adapters, parameters)


@dataclass(frozen=True)
class Store:
    """The folder that ``OLLAMA_MODELS`` names."""

    root: Path

    @classmethod
    def of_blob(cls, path: Path) -> Store | None:
        """The store in which a blob lies; ``None`` if the path is not one of a blob."""
        if path.parent.name != "blobs" or not _DIGEST.fullmatch(path.name):
            return None
        return cls(path.parent.parent)

    def entries(self) -> Iterator[Entry]:
        """Every model, by name; those that cannot be used with the reason."""
        for name, path in self._manifests():
            try:
                yield self._entry(name, path)
            except Damaged as error:
                yield Entry(name, path, unfit=str(error), damaged=True)

    def blob(self, digest: str) -> Path:
        """The file of a digest.

        Raises:
            Damaged: the digest is none, or there is no such file in this store.
        """
        found = _DIGEST.fullmatch(digest)
        if found is None:
            raise Damaged(f"a layer's digest is {digest[:80]!r}")
        path = inside(self.root / "blobs", f"sha256-{found[1]}")
        if path is None:
            raise Damaged(f"its blob {digest[:19]}… lies outside the store")
        if not path.is_file():
            raise Damaged(f"its blob {digest[:19]}… is missing")
        return path

    def _manifests(self) -> Iterator[tuple[Name, Path]]:
        """``manifests/HOST/NAMESPACE/MODEL/TAG``; what Ollama would not list is passed over."""
        root = self.root / "manifests"
        left = _MOST_MANIFESTS
        for host in _folders(root):
            for namespace in _folders(host):
                for model in _folders(namespace):
                    for path in _listed(model):
                        name = Name.of(path.parts[-4:])
                        left -= 1
                        if left < 0:
                            return
                        if name is not None and not path.is_dir():
                            yield name, path

    def _entry(self, name: Name, path: Path) -> Entry:
        if not _stays_in(self.root / "manifests", path):
            raise Damaged("its manifest is a link that leads out of the store")
        manifest = _json(path, "manifest")
        layers = items(manifest, "layers")
        if len(layers) > _MOST_LAYERS:
            raise Damaged(f"its manifest has {len(layers)} layers")
        config = self._config(manifest.get("config"))
        if text(config, "remote_host"):
            return Entry(name, path, unfit="it runs on another machine, not on this one")
        kinds = {text(layer, "mediaType") for layer in layers}
        if text(config, "model_format") == "safetensors" or f"{_KIND}tensor" in kinds:
            return Entry(name, path, unfit="it is a safetensors model, which Ollama runs on MLX")
        found = self._layers(layers)
        model = found.get("model")
        if not model:
            return Entry(name, path, unfit="its manifest names no model")
        return Entry(
            name=name,
            manifest=path,
            model=model[-1],  # Ollama takes the last one, too
            draft=found["draft"][-1] if "draft" in found else None,
            projector=found["projector"][0] if "projector" in found else None,
            adapters=tuple(found.get("adapter", ())),
            params=self._params(found.get("params", ())),
            words=self._words(path, layers),
        )

    def _config(self, layer: object) -> Mapping[str, Any]:
        digest = text(layer, "digest")
        return _json(self.blob(digest), "configuration") if digest else {}

    def _layers(self, layers: Any) -> dict[str, list[Path]]:
        """Blobs by kind, for the kinds we read."""
        found: dict[str, list[Path]] = {}
        for layer in layers:
            kind = (text(layer, "mediaType") or "").removeprefix(_KIND)
            if kind not in ("model", "draft", "projector", "adapter", "params"):
                continue
            path = self.blob(text(layer, "digest") or "")
            said, size = layer.get("size"), path.stat().st_size
            if said != size or isinstance(said, bool):
                raise Damaged(f"its {kind} blob has {size} bytes, its manifest says {said!r:.40}")
            found.setdefault(kind, []).append(path)
        return found

    def _words(self, manifest: Path, layers: Any) -> ModelWords | None:
        """What is not in files of its own to the server. A store that is damaged here can still be
        run from."""
        try:
            said = {kind: self._texts(layers, kind) for kind in _WORDS}
            raw, modified = read_bytes(manifest, _MOST_JSON), manifest.stat().st_mtime
            messages = [parse_json(one) for one in said["messages"]]
            params = [parse_json(one) for one in said["params"]]
        except (Damaged, OSError, ValueError):
            return None
        turns = messages[-1] if messages and isinstance(messages[-1], list) else ()
        options = params[-1] if params and isinstance(params[-1], dict) else {}
        return ModelWords(
            digest=sha256(raw).hexdigest(),
            modified=modified,
            template=_last(said["template"] or said["prompt"]),
            system=_last(said["system"]),
            parameters=options,
            messages=tuple(turn for turn in turns if isinstance(turn, dict)),
            licenses=tuple(one.decode("utf-8", "replace") for one in said["license"]),
        )

    def _texts(self, layers: Any, kind: str) -> list[bytes]:
        digests = (text(la, "digest") for la in layers if text(la, "mediaType") == _KIND + kind)
        return [read_bytes(self.blob(digest or ""), _MOST_JSON) for digest in digests]

    def _params(self, blobs: Any) -> Mapping[str, Any]:
        return _json(blobs[-1], "parameters") if blobs else {}


def _last(found: list[bytes]) -> str | None:
    return found[-1].decode("utf-8", "replace") if found else None


def _stays_in(root: Path, path: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # circular links
        return False


def _json(path: Path, what: str) -> dict[str, Any]:
    try:
        data = read_json(path, _MOST_JSON)
    except (OSError, ValueError) as error:
        why = (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
        raise Damaged(f"its {what} cannot be read: {why}") from error
    if not isinstance(data, dict):
        raise Damaged(f"its {what} is no JSON object")
    return data


def _folders(path: Path) -> Iterator[Path]:
    return (child for child in _listed(path) if child.is_dir())


def _listed(path: Path) -> list[Path]:
    try:
        return [path / name for name in sorted(os.listdir(path))]  # noqa: PTH208
    except OSError:
        return []

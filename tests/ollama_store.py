"""Ollama's folders as they lie on a disk, with contents invented here."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

KIND = "application/vnd.ollama.image."


class Shelf:
    """A store in the making: what ``OLLAMA_MODELS`` names.

    Attributes:
        root: the folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "blobs").mkdir(parents=True)
        (root / "manifests").mkdir()

    def blob(self, content: bytes | Path) -> dict[str, Any]:
        """A blob, and the layer that names it, without media type. A file is linked to."""
        if isinstance(content, Path):
            digest = hashlib.sha256(content.read_bytes()).hexdigest()
            place = self.root / "blobs" / f"sha256-{digest}"
            if not place.exists():
                try:
                    os.link(content.resolve(), place)
                except OSError:  # another file system
                    place.write_bytes(content.read_bytes())
            return {"digest": f"sha256:{digest}", "size": content.stat().st_size}
        digest = hashlib.sha256(content).hexdigest()
        (self.root / "blobs" / f"sha256-{digest}").write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    def path(self, layer: dict[str, Any]) -> Path:
        """Where the blob of a layer lies."""
        return self.root / "blobs" / str(layer["digest"]).replace(":", "-")

    def write(self, name: str, manifest: Any) -> Path:
        """A manifest under ``host/namespace/model/tag``, or ``model:tag`` of Ollama's library."""
        if "/" not in name:
            name = f"registry.ollama.ai/library/{name.replace(':', '/')}"
        path = self.root / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
        path.write_bytes(raw)
        return path

    def add(
        self,
        name: str,
        model: bytes | Path,
        params: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
        **more: bytes | Path,
    ) -> Path:
        """A model with its layers; ``more`` has other kinds, e.g. ``projector``. The manifest."""
        said = {"model_format": "gguf", "os": "linux", "architecture": "amd64", **(config or {})}
        layers = [{"mediaType": f"{KIND}model", **self.blob(model)}]
        layers += [{"mediaType": KIND + kind, **self.blob(what)} for kind, what in more.items()]
        if params is not None:
            raw = json.dumps(params).encode()
            layers.append({"mediaType": f"{KIND}params", **self.blob(raw)})
        return self.write(
            name,
            {
                "schemaVersion": 2,
                "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                "config": {
                    "mediaType": "application/vnd.docker.container.image.v1+json",
                    **self.blob(json.dumps(said).encode()),
                },
                "layers": layers,
            },
        )

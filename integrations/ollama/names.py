"""Ollama's model names: as its store has them, and as people type them.

The rule of what a name may hold and how it is shortened is Ollama's ``types/model/name.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}")
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_MODEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}")
_RULES = (_HOST, _NAMESPACE, _MODEL, _MODEL)
_LONGEST_TAG = 80

_REGISTRY = "registry.ollama.ai"
_LIBRARY = "library"

TWIN = "-srhpm"
"""What the tag of a twin ends with."""

# A twin is told from its base by what reaches llama-server, and the size of a batch is the only
# option of a model that Ollama passes on always, as it is, and that changes no answer. Ollama
# chooses 256, 512, 1024 or 2048 by itself and people choose round numbers: one less than a power of
# two means a twin. Not one more: kernels that work on tiles would get a last one of a single row.
_USUAL_BATCH = 512
_LEAST_BATCH = 64


@dataclass(frozen=True)
class Name:
    """A full name."""

    host: str
    namespace: str
    model: str
    tag: str

    @classmethod
    def of(cls, parts: tuple[str, ...]) -> Name | None:
        """From the parts of a path below ``manifests``; ``None`` if Ollama would not take it."""
        if len(parts) != len(_RULES):
            return None
        if not all(rule.fullmatch(part) for rule, part in zip(_RULES, parts, strict=True)):
            return None
        return cls(*parts)

    def __str__(self) -> str:
        """The shortest form that ``ollama run`` takes and ``ollama list`` shows."""
        name = f"{self.model}:{self.tag}"
        if self.host.casefold() != _REGISTRY:
            return f"{self.host}/{self.namespace}/{name}"
        if self.namespace.casefold() != _LIBRARY:
            return f"{self.namespace}/{name}"
        return name

    @property
    def is_twin(self) -> bool:
        """It is called like a twin."""
        return self.tag.endswith(TWIN)

    def twin(self) -> Name | None:
        """The name of its twin; ``None`` if that would be too long for Ollama."""
        tag = self.tag + TWIN
        if len(tag) > _LONGEST_TAG:
            return None
        return Name(self.host, self.namespace, self.model, tag)


def marker(params: Mapping[str, Any]) -> int:
    """``num_batch`` of a twin of a model with these parameters: the largest one that marks a twin
    and is no larger than what the model has."""
    batch = params.get("num_batch")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < _LEAST_BATCH:
        batch = _USUAL_BATCH
    return (1 << min(batch.bit_length() - 1, 16)) - 1


def marks_twin(batch: int) -> bool:
    """Whether a server started with this batch was started for a twin."""
    return batch >= _LEAST_BATCH - 1 and batch & (batch + 1) == 0

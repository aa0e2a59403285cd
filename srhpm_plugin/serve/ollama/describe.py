"""What a model is, from its GGUF header: details, ``model_info`` and capabilities.

Capabilities follow Ollama's rules (its ``server/images.go``), with the GGUF's own chat template,
which is the one that llama-server renders.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import floor, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from gguf import LlamaFileType

from ...errors import UserError
from ...gguf.parts import read_parts
from ...gguf.values import LongString, NumberArray, StringArray, Value
from ...model import Tensor
from ..interfaces import ServedModel

_LEFT_OUT = ("general.name", "tokenizer.chat_template")
_TOOL_WORDS = ("tools", "tool_call")
_TOKENS = "tokenizer.ggml.tokens"
_ARRAYS = (_TOKENS, "tokenizer.ggml.merges", "general.languages", "general.tags")
_FIM_FIELDS = ("tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id")
# llama.cpp finds these in vocabularies whose header does not name them
_FIM_TOKENS = frozenset(
    text.encode()
    for text in (
        "<|fim_prefix|>",
        "<fim-prefix>",
        "<fim_prefix>",
        "<PRE>",
        "\u2581<PRE>",
        "<|code_prefix|>",
        "<\uff5cfim\u2581begin\uff5c>",
    )
)
_CACHED = 512


@dataclass(frozen=True)
class Facts:
    """Attributes:
    family: architecture.
    parameters: number of weights.
    quantization: e.g. ``Q4_K_M``.
    template: the chat template (jinja), empty when there is none.
    n_ctx, n_embd: trained context and width, 0 when not stated.
    capabilities: Ollama's words.
    """

    family: str = ""
    parameters: int = 0
    quantization: str = "unknown"
    template: str = ""
    n_ctx: int = 0
    n_embd: int = 0
    capabilities: tuple[str, ...] = ("completion",)

    def details(self, model: ServedModel, *, sizes: bool = False) -> dict[str, Any]:
        """Ollama's ``details``; ``sizes`` adds those that lists have."""
        said: dict[str, Any] = {
            "parent_model": model.parent or "",
            "format": "gguf",
            "family": self.family,
            "families": [self.family] if self.family else None,
            "parameter_size": human(self.parameters),
            "quantization_level": self.quantization,
        }
        if sizes:
            said.update({"context_length": self.n_ctx, "embedding_length": self.n_embd})
            said = {k: v for k, v in said.items() if v != 0}
        return said


@dataclass(frozen=True)
class Contents:
    """All of a header, for ``show``."""

    tensors: tuple[Tensor, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)


async def facts_of(model: ServedModel) -> Facts:
    """Cheap when asked again; what cannot be read is left empty."""
    key = (model.path, model.mmproj, model.digest, model.nbytes, model.modified)
    facts = _known.get(key)
    if facts is None:
        facts = await asyncio.to_thread(_facts, model)
        if len(_known) >= _CACHED:
            _known.clear()
        if facts.family:  # it could be read
            _known[key] = facts
    return facts


def _facts(model: ServedModel) -> Facts:
    with _lock:  # a list of models asks for all of them: one disk, one core
        facts = _read(model.path, _stamp(model.path))
    if model.mmproj is not None and "vision" not in facts.capabilities:
        return Facts(**{**vars(facts), "capabilities": (*facts.capabilities, "vision")})
    return facts


# Before every answer, so without a change of threads; what catalogs say of a file changes with it.
_known: dict[tuple[object, ...], Facts] = {}
_lock = threading.Lock()


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=_CACHED)
def _read(path: Path, stamp: tuple[int, int]) -> Facts:
    try:
        parts = read_parts(path, keep=(_TOKENS,))
    except UserError:
        return Facts()
    kv = parts.first.kv
    arch = _text(kv, "general.architecture")
    template = _text(kv, "tokenizer.chat_template")
    return Facts(
        family=arch,
        parameters=sum(t.n_elements for t in parts.tensors),
        quantization=_quantization(kv.get("general.file_type")),
        template=template,
        n_ctx=_number(kv, f"{arch}.context_length"),
        n_embd=_number(kv, f"{arch}.embedding_length"),
        capabilities=_capabilities(kv, arch, template),
    )


def _capabilities(kv: Mapping[str, Value], arch: str, template: str) -> tuple[str, ...]:
    found = ["embedding" if f"{arch}.pooling_type" in kv else "completion"]
    if any(word in template for word in _TOOL_WORDS):
        found.append("tools")
    if _thinks(template):
        found.append("thinking")
    if _fills_in(kv):
        found.append("insert")
    return tuple(found)


def _fills_in(kv: Mapping[str, Value]) -> bool:
    if any(name in kv for name in _FIM_FIELDS):
        return True
    tokens = kv.get(_TOKENS)
    items = tokens.items if isinstance(tokens, StringArray) else None
    return not _FIM_TOKENS.isdisjoint(items or ())


def _thinks(template: str) -> bool:
    if "<think>" in template and "</think>" in template:
        return True
    if "<|channel|>" in template and "reasoning_effort" in template:  # gpt-oss
        return True
    splits = "content.split('</think>')" in template or 'content.split("</think>")' in template
    return splits and "reasoning_content" not in template and "<SPECIAL_12>" not in template


async def contents_of(path: Path, verbose: bool) -> Contents:
    """The header's fields and tensors; ``verbose`` with the vocabulary."""
    return await asyncio.to_thread(_contents, path, verbose)


def _contents(path: Path, verbose: bool) -> Contents:
    try:
        parts = read_parts(path, keep=_ARRAYS if verbose else ())
    except UserError:
        return Contents()
    fields = sorted(parts.first.kv.items())
    info = {k: _shown(v, verbose) for k, v in fields if k not in _LEFT_OUT}
    info["general.parameter_count"] = sum(t.n_elements for t in parts.tensors)
    return Contents(parts.tensors, info)


def _shown(value: Value, verbose: bool) -> Any:
    """Arrays only when asked for, and long ones of numbers never: the header reader keeps none."""
    if isinstance(value, LongString):
        return None
    if isinstance(value, StringArray):
        return [s.decode("utf-8", "replace") for s in value.items] if value.items else None
    if isinstance(value, NumberArray):
        return list(value.items) if verbose and value.items is not None else None
    return _decimal(value) if isinstance(value, float) else value


def _decimal(value: float) -> float | None:
    """As short as a number of 32 bits can be written; JSON has none that is infinite."""
    if not isfinite(value):
        return None
    try:
        single = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return value
    return float(str(np.float32(value))) if single == value else value


def human(count: int) -> str:
    """A number of weights as Ollama writes it: 134.52M, 1.7B, 2B."""
    for unit, letter, digits in ((10**9, "B", 1), (10**6, "M", 2)):
        if count >= unit:
            number = count / unit
            return (
                f"{number:.0f}{letter}"
                if number == floor(number)
                else f"{number:.{digits}f}{letter}"
            )
    return f"{count / 1000:.0f}K" if count >= 1000 else str(count)


def _quantization(file_type: Value | None) -> str:
    if isinstance(file_type, int):
        try:
            return LlamaFileType(file_type).name.removeprefix("MOSTLY_").removeprefix("ALL_")
        except ValueError:
            pass
    return "unknown"


def _text(kv: Mapping[str, Value], key: str) -> str:
    value = kv.get(key)
    return value if isinstance(value, str) else ""


def _number(kv: Mapping[str, Value], key: str) -> int:
    value = kv.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0

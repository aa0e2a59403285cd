"""``options``: Ollama's meaning and defaults, and what llama-server is told.

The names and defaults are those of Ollama's ``api/types.go`` (``Options``, ``Runner``,
``DefaultOptions``), version 0.33; a model's store sets its own over these, a request over both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from ..interfaces import Need, ServedModel
from .errors import ApiError

_INT32: Final = 2**31 - 1
_MOST_STOPS: Final = 256
_LEAST_CTX: Final = 4  # as in Ollama's scheduler; with one token llama-server aborts

SAMPLING: Final[Mapping[str, int | float]] = MappingProxyType(
    {
        "num_keep": 4,
        "seed": -1,
        "num_predict": -1,
        "top_k": 40,
        "top_p": 0.9,
        "min_p": 0.0,
        "typical_p": 1.0,
        "repeat_last_n": 64,
        "temperature": 0.8,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }
)
"""Options that each request may set, with their defaults; ``stop`` is one more."""

LOADING: Final[Mapping[str, type]] = MappingProxyType(
    {
        "num_ctx": int,
        "num_batch": int,
        "num_gpu": int,
        "main_gpu": int,
        "use_mmap": bool,
        "num_thread": int,
        "draft_num_predict": int,
    }
)
"""Options that matter when a model is loaded. Of these ``num_ctx``, ``num_gpu`` and ``num_thread``
are followed; the plan decides on the others."""

_ENGINE_NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {"num_keep": "n_keep", "num_predict": "n_predict"}
)


class Options:
    """The options in force for a request.

    Args:
        model: its store's parameters come first; what is wrong in them is passed over.
        said: the request's.

    Raises:
        ApiError: 400, the request's are of the wrong type.
    """

    def __init__(self, model: ServedModel, said: Mapping[str, Any]) -> None:
        values: dict[str, Any] = dict(SAMPLING)
        for name, value in model.parameters.items():
            try:
                values.update(check_option(name, value))
            except ApiError:
                continue
        for name, value in said.items():
            values.update(check_option(name, value))
        self._values = values
        self._model = model

    def get(self, name: str) -> Any:
        """The value of an option, ``None`` where there is neither one nor a default."""
        return self._values.get(name)

    def need(self, embedding: bool = False) -> Need:
        """How the model must be loaded. Zero and less leave it to the plan, as in Ollama."""
        ctx, layers, threads = (self.get(n) for n in ("num_ctx", "num_gpu", "num_thread"))
        return Need(
            ctx=max(ctx, _LEAST_CTX) if ctx and ctx > 0 else self._model.ctx,
            embedding=embedding,
            gpu_layers=layers if layers is not None and layers >= 0 else None,
            threads=threads if threads and threads > 0 else None,
        )

    def sampling(self) -> dict[str, Any]:
        """Fields for llama-server's completions."""
        body = {_ENGINE_NAMES.get(name, name): self._values[name] for name in SAMPLING}
        body["stop"] = list(self._values.get("stop", ()))
        body["cache_prompt"] = True
        return body


def check_option(name: str, value: Any) -> dict[str, Any]:
    """One option as ``{name: value}``; empty when it is unknown or ``null``, as Ollama has it.

    Raises:
        ApiError: 400, it has the wrong type or is out of range.
    """
    if value is None:
        return {}
    if name == "stop":
        return {name: _stop(value)}
    if name in SAMPLING:
        default = SAMPLING[name]
        return {name: _whole(name, value) if isinstance(default, int) else _real(name, value)}
    if name in LOADING:
        if LOADING[name] is bool:
            if not isinstance(value, bool):
                raise ApiError(400, f'option "{name}" must be of type boolean')
            return {name: value}
        return {name: _whole(name, value)}
    return {}


def _whole(name: str, value: Any) -> int:
    """Fractions are cut off, as Ollama does."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, f'option "{name}" must be of type integer')
    if not -_INT32 <= value <= 2 * _INT32 + 1:  # seeds have 32 bits; NaN fails too
        raise ApiError(400, f'option "{name}" is out of range')
    return int(value)


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, f'option "{name}" must be of type float32')
    if not math.isfinite(value) or abs(value) > 1e6:
        raise ApiError(400, f'option "{name}" is out of range')
    return float(value)


def _stop(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):  # Ollama's own store has lists only, other stores both
        return (value,)
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) for v in value):
        raise ApiError(400, 'option "stop" must be of an array of strings')
    if len(value) > _MOST_STOPS:
        raise ApiError(400, f'option "stop" has more than {_MOST_STOPS} texts')
    return tuple(value)

"""Names to models, and what models can do, with the refusals that Ollama's clients know."""

from __future__ import annotations

from .. import interfaces
from ..app import Parts
from ..interfaces import NoSuchModelError, ServedModel
from .describe import Facts
from .errors import ApiError
from .reply import Record, now
from .requests import Asked, Think

_NO_MAX = ("gpt-oss", "gptoss")  # these have learned low, medium and high


async def find(parts: Parts, name: str, missing: str = "model '{}' not found") -> ServedModel:
    """The model of that name.

    Raises:
        ApiError: 404 in the words of ``missing`` (clients compare them, and some pull the model
            then), there is none; 400, our server cannot run it.
    """
    try:
        model = await interfaces.find(parts.catalog, name)
    except NoSuchModelError:
        raise ApiError(404, missing.format(name)) from None
    if model.unfit is not None:
        raise ApiError(400, f"model '{name}' cannot be run: {model.unfit}")
    return model


def require(name: str, facts: Facts, capability: str, use: str) -> None:
    """Raises ApiError 400 where the model lacks a capability; ``use`` is the word for it."""
    if capability not in facts.capabilities:
        raise ApiError(400, f'"{name}" does not support {use}')


def thinking(asked: Asked, facts: Facts) -> Think | None:
    """Whether to think: models that can do unless told not to.

    Raises:
        ApiError: 400, it was asked of a model that cannot.
    """
    if "thinking" in facts.capabilities:
        if asked.think == "max" and facts.family in _NO_MAX:
            return "high"
        return True if asked.think is None else asked.think
    if asked.think:
        raise ApiError(400, f'"{asked.model}" does not support thinking')
    return None


def loading_record(name: str, reason: str) -> Record:
    """The answer to a request that only loads or unloads."""
    return {"model": name, "created_at": now(), "done": True, "done_reason": reason}

"""What goes wrong, in the form Ollama's clients know: a status and ``{"error": "..."}``."""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.responses import JSONResponse

from ...errors import UserError
from ..interfaces import BusyError, LoadError
from ..wire import ServerGoneError

_log = logging.getLogger(__name__)

_LONGEST = 2000  # characters of a message of the engine


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: HTTP status.
        text: one line for the user.
        retry_after: seconds, when trying again later helps.
    """

    def __init__(self, status: int, text: str, retry_after: int | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after

    def response(self) -> JSONResponse:
        """As the whole answer."""
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after is not None else None
        return JSONResponse({"error": self.text}, self.status, headers)


class EngineError(ApiError):
    """The engine refused a request.

    Attributes:
        kind: its word for the reason, e.g. ``exceed_context_size_error``.
        n_ctx: tokens that would have fitted, for that one.
    """

    def __init__(self, status: int, text: str, kind: str, n_ctx: int | None) -> None:
        super().__init__(status, text)
        self.kind = kind
        self.n_ctx = n_ctx

    @property
    def too_long(self) -> bool:
        """The prompt has more tokens than the context."""
        return self.kind == "exceed_context_size_error"


def from_engine(status: int, body: bytes | dict[str, Any]) -> EngineError:
    """The error that llama-server answered with: ``{"error": {"code", "message", "type"}}``."""
    said: Any = body
    if isinstance(body, bytes):
        try:
            said = json.loads(body)
        except ValueError:
            said = {"error": body[:_LONGEST].decode("utf-8", "replace")}
    error = said.get("error") if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return EngineError(status, str(error)[:_LONGEST] or "the engine failed", "", None)
    n_ctx = error.get("n_ctx")
    return EngineError(
        status,
        str(error.get("message") or "the engine failed")[:_LONGEST].strip(),
        str(error.get("type", "")),
        n_ctx if isinstance(n_ctx, int) else None,
    )


def as_api_error(error: Exception) -> ApiError:
    """Whatever happened while a request was worked on, as an answer."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, BusyError):
        # these words, two spaces included, are what clients compare with
        what = "server busy, please try again.  maximum pending requests exceeded"
        return ApiError(503, what, error.retry_after)
    if isinstance(error, LoadError | UserError):
        return ApiError(500, str(error))
    if isinstance(error, ServerGoneError):
        why = str(error) or "its server ended"
        return ApiError(500, f"an error was encountered while running the model: {why}; ask again")
    if isinstance(error, RecursionError):
        return ApiError(400, "the request is nested too deeply")
    if isinstance(error, OSError):
        return ApiError(500, f"{error.strerror or error}: free some space, or check the disk")
    _log.error("a request failed", exc_info=error)
    return ApiError(500, "the request failed: the log of `srhpm-plugin serve` says why")


def model_not_found(name: str) -> ApiError:
    """Clients look for these words, some pull the model then."""
    return ApiError(404, f"model '{name}' not found")

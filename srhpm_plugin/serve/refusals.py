"""Errors that come before any route: each in the form of the API that was called."""

from __future__ import annotations

from starlette.responses import JSONResponse, PlainTextResponse, Response

_OPENAI = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    503: "overloaded_error",
}
_ANTHROPIC = {**_OPENAI, 413: "request_too_large", 500: "api_error", 503: "overloaded_error"}


def refusal(path: str, status: int, text: str) -> Response:
    """An error answer.

    Args:
        path: of the request.
        status: HTTP's.
        text: one line.
    """
    if path.startswith("/v1/messages"):
        kind = _ANTHROPIC.get(status, "invalid_request_error")
        error = {"type": kind, "message": text}
        return JSONResponse({"type": "error", "error": error}, status)
    if path.startswith("/v1"):
        kind = _OPENAI.get(status, "server_error" if status >= 500 else "invalid_request_error")
        error = {"message": text, "type": kind}
        return JSONResponse({"error": {**error, "code": None, "param": None}}, status)
    if path.startswith("/api"):
        return JSONResponse({"error": text}, status)
    return PlainTextResponse(f"{text}\n", status)

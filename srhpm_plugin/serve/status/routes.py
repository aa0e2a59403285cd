"""``/srhpm``, ``/srhpm.json`` and ``/metrics``."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..app import Parts
from . import metrics
from .page import page
from .plans import Plans
from .snapshot import snapshot
from .style import HEADERS

_JSON = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def routes(parts: Parts) -> list[Route]:
    """All of them."""
    plans = Plans(parts.settings)

    async def html(request: Request) -> Response:
        if _wants_json(request.headers.get("accept", "")):
            return await as_json(request)
        live = request.query_params.get("live") != "off"
        body = page(snapshot(parts, plans), live).encode("utf-8", "replace")
        return Response(body, headers=HEADERS, media_type="text/html")

    async def as_json(request: Request) -> Response:
        body = json.dumps(snapshot(parts, plans)).encode()
        return Response(body, headers=_JSON, media_type="application/json")

    async def prometheus(request: Request) -> Response:
        said = metrics.text(metrics.metrics(snapshot(parts, plans, with_models=False)))
        return Response(said.encode("utf-8", "replace"), media_type=metrics.TYPE)

    return [
        Route("/srhpm", html, methods=["GET"]),
        Route("/srhpm.json", as_json, methods=["GET"]),
        Route("/metrics", prometheus, methods=["GET"]),
    ]


def _wants_json(accept: str) -> bool:
    """JSON is named, and before HTML."""
    kinds = [kind.partition(";")[0].strip() for kind in accept.split(",")]
    if "application/json" not in kinds:
        return False
    return "text/html" not in kinds or kinds.index("application/json") < kinds.index("text/html")

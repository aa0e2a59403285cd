"""A start without a model, where the host uses llama-server's router mode (Jan 0.8.0 to 0.8.4).

Upstream's router starts its own program for each model, so with the host's server as the router no
model would come to the drop-in. Ours takes the variable ``SRHPM_ROUTER_CHILD`` for the program to
start instead. What router and model servers tell each other differs between llama.cpp tags;
therefore a model of our router that is handed over goes to our own server with everything of ours
switched off, and where the host's server has a GPU that ours has not, the router stays the host's.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .answer import Answer
from .cache import Kept
from .call import Call

CHILD = "SRHPM_ROUTER_CHILD"


def of_ours(call: Call) -> bool:
    """The start is by our router."""
    return bool(call.env.get(CHILD)) and bool(call.env.get("LLAMA_SERVER_ROUTER_PORT"))


def decision(call: Call) -> Kept | None:
    """What a start without a model becomes; ``None``: it stays the host's, said on standard error
    when it is a router's."""
    if not call.note.router or of_ours(call):
        return None
    from ..native.locate import find_server

    server = find_server()
    why = _against(call, server)
    if server is None or why:
        print(f"srhpm: the router stays the host's own: {why}", file=sys.stderr, flush=True)
        return None
    plain = Answer.untouched(server.absolute(), len(call.argv))
    answer = Answer(plain.program, plain.args, {CHILD: str(call.place)})
    return Kept(answer, {"host": call.note.host, "kind": "router", "reason": "no model is named"})


def _against(call: Call, server: Path | None) -> str | None:
    """Why the host's own server must be the router, in words."""
    from ..machine.gpus import server_gpus
    from .gpu import host_gpu

    if server is None:
        return "our server is not built: type srhpm-plugin native build"
    original = call.original
    theirs = host_gpu(original, call.env, wanted=False) if original is not None else None
    if theirs is not None and not server_gpus(server, []):
        return f"it uses the GPU {theirs}, ours is built without it"
    return None

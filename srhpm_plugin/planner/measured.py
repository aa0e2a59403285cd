"""What earlier launches measured, for a plan that starts the same server in the same way.

Only figures of our own server are known here: each start by a host leaves a record with the key of
its plan, and the server keeps beside it how many tokens it generated in what time. What people ask
for changes the speed of a drafter, so a figure says how many tokens it rests on, and in which host.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..dropin import records
from ..dropin.files import read_json
from ..errors import UserError
from ..plan import LaunchPlan, Predicted
from ..plugins import plugins

# The newest starts count, as many as it takes for so many tokens; fewer than the least say nothing.
_ENOUGH = 256
_LEAST = 32

# Records by name: nobody changes one once it is written.
_read: dict[str, dict[str, Any]] = {}


def plan_key(plan: LaunchPlan) -> str | None:
    """A hash over what a plan's speed depends on: files, server, drafter, placement, threads,
    kernels. Context and slots are no part of it: what is used of them counts, and that is unknown.
    ``None``: there is no server.
    """
    try:
        server = plugins().backend(plan.backend).server()
    except UserError:
        return None
    if server is None:
        return None
    draft = plan.draft
    facts = [
        plan.backend,
        _file(server),
        _file(plan.model.path),
        draft and [draft.type, _file(draft.path), draft.n_min, draft.n_max, draft.p_min],
        draft and draft.device,
        plan.gpu_layers,
        *([plan.layer_list] if plan.layer_set else []),  # else as before there were sets
        plan.cpu_moe,
        plan.threads,
        plan.kernels,
        plan.cache_type_k,
        plan.cache_type_v,
        plan.relax,
    ]
    text = json.dumps(facts).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:32]


def _file(path: Path | None) -> list[object] | None:
    if path is None:
        return None
    try:
        stat = path.stat()
        return [str(path.resolve()), stat.st_size, stat.st_mtime_ns]
    except OSError:
        return [str(path)]


def measured(plan: LaunchPlan) -> Predicted | None:
    """The speed of the newest starts with this plan; ``None`` where none was measured."""
    key = plan_key(plan)
    if key is None:
        return None
    tokens, drafted, accepted, seconds = 0, 0, 0, 0.0
    hosts: dict[str, None] = {}
    for path, facts in launches():
        if facts.get("plan") != key:
            continue
        live = records.read_live(path)
        if not live.tokens:
            continue
        hosts[str(facts.get("host"))] = None
        tokens += live.tokens
        seconds += live.seconds
        drafted += live.drafted
        accepted += live.accepted
        if tokens >= _ENOUGH:
            break
    if tokens < _LEAST or not seconds:
        return None
    return Predicted(
        tok_s=tokens / seconds,
        acceptance=accepted / drafted if drafted else None,
        basis="measured",
        source=f"{tokens} tokens of its last answers in {', '.join(hosts)}",
    )


def launches() -> list[tuple[Path, dict[str, Any]]]:
    """The records of all starts by hosts, the newest first, each with its path."""
    try:
        paths = sorted(records.folder().glob("*.json"), reverse=True)
    except OSError:
        return []
    names = {path.name for path in paths}
    for gone in _read.keys() - names:
        del _read[gone]
    for path in paths:
        if path.name not in _read:
            _read[path.name] = read_json(path)
    return [(path, _read[path.name]) for path in paths]

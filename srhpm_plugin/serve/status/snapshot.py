"""Everything that the page, its JSON and the metrics show, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import psutil

from ..._version import __version__
from ...plan import LaunchPlan
from ...planner.hosted import label
from ..app import Parts
from ..interfaces import Loaded, ServedModel
from ..stats import ModelStats, sum_of
from .plans import Plans

CPU = "CPU"


def snapshot(parts: Parts, plans: Plans, with_models: bool = True) -> dict[str, Any]:
    """The state now. Times are ISO 8601 in UTC, sizes bytes, speeds tokens per second.

    Args:
        parts: of the application.
        plans: of models that are not loaded.
        with_models: ask for these plans; without, no model is looked at.
    """
    models = parts.catalog.all() if with_models else ()
    loaded = parts.scheduler.loaded()
    plans.refresh(models if with_models else None)
    now = datetime.now(timezone.utc)
    return {
        "version": __version__,
        "now": _time(now),
        "since": _time(parts.stats.since),
        "up_seconds": round((now - parts.stats.since).total_seconds()),
        "loaded": [_loaded(one, parts) for one in loaded],
        "memory": _memory(loaded, plans),
        "models": [_model(m, plans, loaded) for m in models],
        "requests": {name: _sums(sums) for name, sums in sorted(parts.stats.models().items())},
        "errors": [
            {"when": _time(t.when), "model": t.model, "text": t.text}
            for t in parts.stats.troubles()
        ],
    }


def _loaded(one: Loaded, parts: Parts) -> dict[str, Any]:
    name = one.model.name
    sums = _stats_of(name, parts)
    return {
        "model": name,
        "embedding": one.need.embedding,
        "pid": one.pid,
        "since": _time(one.since),
        "expires": _time(one.expires) if one.expires else None,
        "active": one.active,
        "slots": one.busy_limit,
        "restarts": one.restarts,
        "tok_s_now": _speed_now(name, parts),
        "tok_s_last": sums.last_tok_s,
        "tok_s_mean": sums.tok_s,
        "predicted": one.plan.predicted.tok_s,
        "drafted": list(sums.drafted),
        "accepted": list(sums.accepted),
        "plan": _plan(one.plan),
    }


def _same(a: str, b: str) -> bool:
    """Whether two names are one model's: clients leave ``:latest`` and capitals out."""
    short = (name.casefold().removesuffix(":latest") for name in (a, b))
    return next(short) == next(short)


def _stats_of(name: str, parts: Parts) -> ModelStats:
    found = [sums for model, sums in parts.stats.models().items() if _same(model, name)]
    return sum_of(found)


def _speed_now(name: str, parts: Parts) -> float | None:
    pulse = parts.stats.pulse
    speeds = [pulse.tok_s(model) for model in pulse.models() if _same(model, name)]
    known = [speed for speed in speeds if speed is not None]
    return sum(known) if known else None


def _plan(plan: LaunchPlan) -> dict[str, Any]:
    return {
        "kind": plan.kind,
        "drafter": _drafter(plan),
        "draft_off_reason": plan.draft_off_reason,
        "ctx": plan.ctx,
        "threads": plan.threads,
        "placement": [
            {"device": p.device, "layers": list(p.layers), "bytes": p.nbytes}
            for p in plan.placement
        ],
        "memory": [{"device": m.device, "bytes": m.total} for m in plan.memory],
        "reasons": list(plan.reasons),
        "warnings": list(plan.warnings),
    }


def _drafter(plan: LaunchPlan) -> str | None:
    draft = plan.draft
    if draft is None:
        return None
    words = {"ngram": "n-grams", "draft-mtp": "its own MTP head"}
    name = label(draft.path) if draft.path else words.get(draft.type, draft.type)
    length = str(draft.n_max) if draft.n_min == draft.n_max else f"{draft.n_min} to {draft.n_max}"
    return f"{name}, {length} tokens"


def _model(model: ServedModel, plans: Plans, loaded: Sequence[Loaded]) -> dict[str, Any]:
    outlook = plans.of(model)
    plan = outlook.plan if outlook else None
    return {
        "name": model.name,
        "origin": model.origin,
        "bytes": model.nbytes,
        "loaded": any(one.model.name == model.name for one in loaded),
        "kind": plan.kind if plan else None,
        "drafter": _drafter(plan) if plan else None,
        "predicted": plan.predicted.tok_s if plan else None,
        "stock": plan.predicted.stock_tok_s if plan else None,
        "why_not": model.unfit or (outlook.why_not if outlook else None),
        "looked_at": outlook is not None or model.unfit is not None,
    }


def _memory(loaded: Sequence[Loaded], plans: Plans) -> list[dict[str, Any]]:
    """By device: all, free, and what each loaded model's plan takes of it."""
    ram = psutil.virtual_memory()
    total, free = int(ram.total), int(ram.available)
    machine = plans.machine
    if machine is not None and machine.memory.cgroup_limit:
        total, free = machine.memory.total, min(machine.memory.free, free)
    devices = {CPU: {"device": CPU, "total": total, "free": free, "models": []}}
    for gpu in machine.gpus if machine else ():
        devices[gpu.name] = {
            "device": gpu.name,
            "total": gpu.total,
            "free": gpu.free,
            "models": [],
        }
    for one in loaded:
        for use in one.plan.memory:
            device = devices.setdefault(
                use.device,
                {"device": use.device, "total": use.free, "free": use.free, "models": []},
            )
            shares = device["models"]
            assert isinstance(shares, list)
            shares.append({"model": one.model.name, "bytes": use.total})
    return list(devices.values())


def _sums(sums: ModelStats) -> dict[str, Any]:
    return {
        "requests": dict(sums.requests),
        "seconds": sums.seconds,
        "prompt_tokens": sums.prompt_tokens,
        "cached_tokens": sums.cached_tokens,
        "prompt_seconds": sums.prompt_ms / 1000,
        "tokens": sums.tokens,
        "decode_seconds": sums.decode_ms / 1000,
        "tok_s": sums.tok_s,
        "acceptance": sums.acceptance,
        "drafted": list(sums.drafted),
        "accepted": list(sums.accepted),
    }


def _time(when: datetime) -> str:
    return when.astimezone(timezone.utc).isoformat(timespec="seconds")

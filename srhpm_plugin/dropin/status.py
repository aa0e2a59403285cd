"""The last launches and the models that are handed over after a failure, for ``status`` and
``doctor``."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from . import records
from .files import read_json


def launches(most: int) -> list[dict[str, Any]]:
    """The newest launches, last one first: what was planned and what became of it.

    ``tok_s`` and ``acceptance`` are measured by the server over all its answers; ``None`` before
    the first.
    """
    try:
        found = sorted(records.folder().glob("*.json"), reverse=True)[:most]
    except OSError:
        return []
    return [_row(path, read_json(path)) for path in found]


def _row(path: Path, record: dict[str, Any]) -> dict[str, Any]:
    live = records.read_live(path)
    return {
        "id": path.stem,
        "time": record.get("time") if isinstance(record.get("time"), (int, float)) else None,
        "host": _text(record, "host"),
        "model": _text(record, "model"),
        "path": _text(record, "path"),
        "kind": _text(record, "kind") or "stock",
        "drafter": _text(record, "drafter"),
        "reason": _text(record, "reason"),
        "predicted": _number(record, "predicted"),
        "state": _state(record, live),
        "failure": _failure(live.reason) if live.state == "failed" else None,
        "tokens": live.tokens,
        "tok_s": live.tokens / live.seconds if live.tokens and live.seconds else None,
        "acceptance": live.accepted / live.drafted if live.drafted else None,
    }


def _failure(reason: str) -> str:
    """Why a start failed, for people: the server itself only says at which step."""
    if reason.startswith("listening"):
        return "it could not listen: is another program at its port? (the model is not to blame)"
    return reason


def _text(record: dict[str, Any], name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


def _number(record: dict[str, Any], name: str) -> float | None:
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) else None


def _state(record: dict[str, Any], live: records.Live) -> str:
    if record.get("kind") == "stock":
        return "handed over"
    if live.state in ("failed", "stopped"):
        return live.state
    runs = records.alive(record.get("pid"), record.get("started"))
    if live.state == "ready":
        return "running" if runs else "ended"
    if not record.get("live"):
        return "running" if runs else "ended"
    return "loading" if runs else "gone while loading"


def blocked_models() -> list[dict[str, str]]:
    """Models of which the next start goes to the host's own server: ``host``, ``model``,
    ``reason`` and ``fix``, the command that lets them try again."""
    found = {}
    for ledger, why in records.all_blocked():
        model = str(ledger.get("model") or "")
        if model and model not in found:
            fix = f"srhpm-plugin status --retry {shlex.quote(model)}"
            found[model] = {
                "host": str(ledger.get("host") or ""),
                "model": model,
                "reason": why,
                "fix": fix,
            }
    return list(found.values())


def launch_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The launches for people, two lines each."""
    lines = ["", "last launches:"] if rows else []
    for row in rows:
        when = ""
        if row["time"] is not None:
            when = (
                datetime.fromtimestamp(row["time"]).astimezone().strftime("%Y-%m-%d %H:%M") + "  "
            )
        head = f"  {when}{row['host']}  {row['model'] or 'no model'}  {row['state']}"
        if row["kind"] != "stock":
            head += f", {row['kind']}, " + (
                f"drafter {row['drafter']}" if row["drafter"] else "no drafter"
            )
        if row["tok_s"] is not None:
            head += f", measured {row['tok_s']:.1f} tok/s over {row['tokens']} tokens"
        if row["predicted"] is not None:
            head += f" (predicted {row['predicted']:.1f})"
        if row["acceptance"] is not None:
            head += f", {row['acceptance']:.0%} of drafted tokens accepted"
        lines.append(head)
        if row["failure"] or row["reason"]:
            lines.append(f"    {row['failure'] or row['reason']}")
    return lines


def blocked_lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """The models that are handed over, for people."""
    lines = ["", "handed over after a failure:"] if rows else []
    for row in rows:
        lines += [f"  {row['host']}  {row['model']}: {row['reason']}", f"  type: {row['fix']}"]
    return lines

"""llama-server's child mode: how its own router talks to the servers that it starts.

With the variable set, the server reports load progress as JSON lines, takes an exit command on
standard input (the only graceful way on Windows) and leaves when standard input ends. Servers that
do not know it ignore the variable; nothing here is needed for a launch to work.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

ENV = {"LLAMA_SERVER_ROUTER_PORT": "0"}
EXIT_LINE = b"cmd_router_to_child:exit\n"
_PREFIX = "cmd_child_to_router:"
_STATE = "cmd_child_to_router:state:"

STAGES = {"text_model": "model", "spec_model": "drafter", "mmproj_model": "projector"}


@dataclass(frozen=True)
class LoadState:
    """What is being loaded and how much of it is there, 0 to 1."""

    stage: str
    fraction: float


# The log comes from another thread of the server, in pieces: its time stamp may stand in front.
_STAMP = re.compile(r"[\d. ]*(?:[DEIW] )?")


def is_ours(line: str) -> bool:
    """Whether the line belongs to the protocol and not to the log."""
    return line[_start(line) :].startswith(_PREFIX)


def _start(line: str) -> int:
    stamp = _STAMP.match(line)
    return stamp.end() if stamp else 0


def parse(line: str) -> LoadState | None:
    """The load state in a protocol line; ``None`` for all else, whatever it holds."""
    line = line[_start(line) :]
    if not line.startswith(_STATE):
        return None
    try:
        payload = json.loads(line[len(_STATE) :])["payload"]
        stage, value = str(payload["current"]), float(payload["value"])
    except (ValueError, TypeError, KeyError):
        return None
    return LoadState(STAGES.get(stage, stage), min(max(value, 0.0), 1.0))

"""``python -I -m srhpm_plugin.dropin --note FILE -- ARGS``: what the drop-in is to become.

Standard output carries the answer and nothing else; whatever is printed on the way goes to standard
error. Only the standard library until the cache was asked: this runs before every start.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from ..native.locate import serve
from . import records
from .answer import Answer
from .cache import Kept, keep, key_of, look_up
from .call import HIDDEN, Call
from .handover import hand_over

# Hosts look for these in a server's log and take the line for its failure.
_ALARMS = re.compile(
    r"error|fatal|panic|failed to allocate|allocation failed|out of (?:device )?memory"
    r"|(?:not enough|insufficient) memory|GGML_ASSERT|ErrorOutOfMemory",
    re.IGNORECASE,
)
_CALMER = {"error": "trouble", "fatal": "serious", "panic": "halt"}


def say(text: str) -> None:
    """One line in the host's log, without words that hosts take for a failure."""
    line = " ".join(text.split())
    print(f"srhpm: {_ALARMS.sub(_calmer, line)}", file=sys.stderr, flush=True)


def _calmer(found: re.Match[str]) -> str:
    return _CALMER.get(found[0].lower()) or re.sub(r"[ _]", "-", found[0])


def answer_for(call: Call) -> Answer:
    """The answer: the one kept, or a new decision; with the record of the start."""
    home = call.note.home
    if home is not None and not home.is_dir():
        # Whoever removed it wants nothing kept there, and it held our server and its records.
        gone = f"{home} (SRHPM_HOME) is gone; to take SR-HPM out: srhpm-plugin status"
        say(f"the model is handed over to the host's own server: {gone}")
        return hand_over(call, gone).answer
    key = key_of(call)
    kept = look_up(key, call.env)
    if kept is None:
        from .decide import decide

        kept, lasting = decide(call)
        if lasting:
            keep(key, kept)
    ours = kept.record.get("kind") != "stock"
    if ours and (why := records.blocked(key)):
        why += "; to try again: srhpm-plugin status --retry MODEL"
        kept = hand_over(call, why, kept.record)
        ours = False
    return _recorded(call, key, kept, ours)


def _recorded(call: Call, key: str, kept: Kept, ours: bool) -> Answer:
    """The answer with the record that the server is to keep; hand-overs are recorded too."""
    facts: dict[str, Any] = dict(kept.record)
    answer = kept.answer
    if not call.names_a_model():
        return answer
    name = facts.get("model") or "the model"
    if ours:
        say(f"{name} runs on SR-HPM: {facts.get('reason')}")
    else:
        to = "the host's own server"
        if answer.program != call.original:
            to = "our server with everything of SR-HPM off"
        say(f"{name} is handed over to {to}: {facts.get('reason')}")
    record = records.begin(key, facts)
    if ours and record is not None:
        live = str(record.with_suffix(records.LIVE))
        answer = Answer(answer.program, answer.args, {**answer.env, records.RECORD_VARIABLE: live})
    return answer


def main(argv: list[str]) -> int:
    """Answers on standard output. Exit code 0: an answer was given."""
    out = os.dup(1)
    os.dup2(2, 1)
    if len(argv) < 3 or argv[0] != "--note" or argv[2] != "--":
        say("the drop-in and this package are of different versions: run srhpm-plugin install")
        return 2
    try:
        call = Call.read(Path(argv[1]), tuple(argv[3:]), os.environ)
        for name in [name for name in os.environ if name.startswith(HIDDEN)]:
            del os.environ[name]
        serve(call.note.host)
        data = answer_for(call).to_bytes()
    except BaseException as failure:  # whatever it is: the host's own server is what remains
        say(f"no decision ({type(failure).__name__}: {failure})")
        return 1
    with os.fdopen(out, "wb") as stream:
        stream.write(data)
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Threads that a plugin has left behind must not hold up the start.
    os._exit(code)

"""Spellings of llama-server that its versions have given up, and what says the same today.

Hosts pass what the version they were written for knew; facts: the option tables of llama.cpp b10488
and b11434, and the argument lists of the hosts.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flags import Flag, FlagTable

# name -> number of values
OLD: dict[str, int] = {
    "--draft": 1,
    "--draft-n": 1,
    "--draft-max": 1,
    "--draft-min": 1,
    "--draft-n-min": 1,
    "--spec-ngram-size-n": 1,
    "--spec-ngram-size-m": 1,
    "--spec-ngram-min-hits": 1,
    "--ctx-size-draft": 1,
    "-cd": 1,
    "--mmap": 0,
    "--no-mmap": 0,
    "--mlock": 0,
    "--direct-io": 0,
    "-dio": 0,
    "--no-direct-io": 0,
    "-ndio": 0,
    "--load-mode": 1,
    "--defrag-thold": 1,
    "-dt": 1,
    "--ui": 0,
    "--no-ui": 0,
    "--webui": 0,
    "--no-webui": 0,
    "--log-disable": 0,
    "--log-verbosity": 1,
    "--log-prefix": 0,
    "--no-log-prefix": 0,
    "--log-timestamps": 0,
    "--no-log-timestamps": 0,
    "--offline": 0,
    "--spec-draft-backend-sampling": 0,
    "--no-spec-draft-backend-sampling": 0,
}

# Dropped without a word where a server does not know them: they change no answer.
HARMLESS = frozenset(
    (
        "--defrag-thold",
        "-dt",
        "--ctx-size-draft",
        "-cd",
        "--ui",
        "--no-ui",
        "--webui",
        "--no-webui",
        "--log-disable",
        "--log-verbosity",
        "--log-prefix",
        "--no-log-prefix",
        "--log-timestamps",
        "--no-log-timestamps",
        "--offline",
        "--spec-draft-backend-sampling",
        "--no-spec-draft-backend-sampling",
    )
)

# Switches that --load-mode has replaced.
_LOADING = {
    "--mmap": ("mmap", True),
    "--no-mmap": ("mmap", False),
    "--mlock": ("mlock", True),
    "--direct-io": ("dio", True),
    "-dio": ("dio", True),
    "--no-direct-io": ("dio", False),
    "-ndio": ("dio", False),
}

_UI = {
    "--ui": "--webui",
    "--webui": "--ui",
    "--no-ui": "--no-webui",
    "--no-webui": "--no-ui",
}

_DRAFT_MAX = ("--draft", "--draft-n", "--draft-max")
_DRAFT_MIN = ("--draft-min", "--draft-n-min")
_NGRAM = {
    "--spec-ngram-size-n": "size-n",
    "--spec-ngram-size-m": "size-m",
    "--spec-ngram-min-hits": "min-hits",
}


def n_values(name: str, table: FlagTable) -> int | None:
    """How many values follow a flag; ``None``: nobody knows it."""
    flag: Flag | None = table.by_name.get(name)
    return flag.values if flag is not None else OLD.get(name)


def is_loading(name: str) -> bool:
    """Whether the flag says how weights get into memory."""
    return name in _LOADING


def load_mode(names: Sequence[str]) -> str:
    """``--load-mode`` for old switches, in the order given."""
    said = dict(_LOADING[name] for name in names)
    if said.get("dio"):
        return "dio"
    if said.get("mlock"):
        return "mlock" if said.get("mmap") is False else "mmap+mlock"
    if said.get("mmap") is None:
        return "auto"
    return "mmap" if said["mmap"] else "none"


def renamed(name: str, spec_types: Sequence[str], table: FlagTable) -> str | None:
    """Today's spelling of an old flag with one value or none; ``None``: there is none."""
    ngram = next((t for t in spec_types if t.startswith("ngram")), "")
    mod = ngram == "ngram-mod"
    new = _UI.get(name)
    if name in _DRAFT_MAX:
        new = "--spec-ngram-mod-n-max" if mod else "--spec-draft-n-max"
    elif name in _DRAFT_MIN:
        new = "--spec-ngram-mod-n-min" if mod else "--spec-draft-n-min"
    elif name in _NGRAM and ngram:
        new = "--spec-ngram-mod-n-match" if mod else f"--spec-{ngram}-{_NGRAM[name]}"
        if mod and name != "--spec-ngram-size-n":
            new = None
    return new if new and table.knows(new) else None

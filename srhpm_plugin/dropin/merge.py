"""The plan's arguments and the host's as one command line: what host or user said always wins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..plan import LaunchPlan
from .answer import LITERAL, Answer
from .arguments import (
    DRAFTER,
    SPEC_TYPE,
    Arguments,
    Item,
    host_speculates,
    parse,
)
from .flags import FlagTable
from .handover import NotOurs

# Flags of the plan's that mean nothing where a host has its own way.
_OURS_ALONE = frozenset(("--ui", "--webui", "--offline"))
_PLACEMENT = ("-ot", "-cmoe", "-ncmoe", "-ncffn", "-dev", "-sm", "-ts", "-mg")
_SPEC = ("--spec-", "-md", "--draft")
_N_MAX, _N_MIN, _P_MIN = "--spec-draft-n-max", "--spec-draft-n-min", "--spec-draft-p-min"
# Upstream's own number where a host speculates and names none.
_UPSTREAM_N_MAX = 3
# What `--spec-default` stands for (common/arg.cpp): n-grams with drafts of up to so many.
_DEFAULT_N_MAX = 64
_LEAST_COLUMNS = 8


def host_drafts(plan: LaunchPlan, arguments: Arguments) -> LaunchPlan:
    """``plan`` with the lengths that the host set for its drafter.

    Its most tokens limit ours. A least number or a probability of its own means another policy
    than ours: then every token is held against that probability, as upstream does.
    """
    draft = plan.draft
    if draft is None or draft.type == "ngram":
        return plan
    n_max = _int(arguments, _N_MAX)
    if n_max is not None:
        draft = replace(draft, n_max=n_max, n_min=min(draft.n_min, n_max))
    if arguments.says(_N_MIN) or arguments.says(_P_MIN):
        draft = replace(draft, n_min=0)
    return replace(plan, draft=draft)


def host_columns(plan: LaunchPlan, arguments: Arguments) -> int:
    """Tokens in the widest verify pass of a drafter that is the host's alone, all slots."""
    lengths = [_int(arguments, _N_MAX) or _UPSTREAM_N_MAX]
    lengths += [_DEFAULT_N_MAX] if arguments.says("--spec-default") else []
    lengths += [
        int(item.values[-1])
        for item in arguments.items
        if item.name.startswith("--spec-ngram")
        and item.name.endswith(("-size-m", "-n-max"))
        and item.values[-1].isdecimal()
    ]
    return plan.parallel * max(_LEAST_COLUMNS, 1 + max(lengths))


def merge(
    plan: LaunchPlan,
    arguments: Arguments,
    table: FlagTable,
    env: Mapping[str, str],
    *,
    overruled: Sequence[str] = (),
    placed_by_host: bool = False,
) -> Answer:
    """The command line and what changes in the environment.

    Args:
        plan: with command.
        arguments: the host's.
        table: the flags of the plan's server.
        env: the host's environment.
        overruled: flags of the host's, by name, that the plan's take the place of.
        placed_by_host: where weights lie is left to the host's flags and the server.
    """
    from pathlib import Path

    ours = parse(plan.argv[1:], {}, table)
    gone = set(overruled)
    kept = tuple(item for item in arguments.items if item.name not in gone)
    variables = {name: value for name, value in arguments.variables.items() if name not in gone}
    said = Arguments(kept, variables)
    words: list[tuple[str, str]] = []
    for item in ours.items:
        if not _overridden(item, said, plan, placed_by_host):
            words += [(LITERAL, text) for text in (item.flag, *item.values)]
    for item in kept:
        if not _leaves_open(item):
            words += item.words
    changes: dict[str, str | None] = {}
    for name, value in plan.env.items():
        # What the user set in the host's environment is meant, also against the plan.
        if not (name.startswith("SRHPM_") and env.get(name)):
            changes[name] = value
    changes |= dict.fromkeys(arguments.unset)
    for variable, flag in table.by_env.items():
        if flag.names[0] in gone and variable in env:
            changes[variable] = None
    return Answer(Path(plan.argv[0]), tuple(words), changes)


def _overridden(item: Item, said: Arguments, plan: LaunchPlan, placed_by_host: bool) -> bool:
    """Whether the host's words take the place of this flag of the plan's."""
    name = item.name
    if name in _OURS_ALONE or (said.says(name) and not _all_open(name, said)):
        return True
    if placed_by_host and name in ("-ngl", "-fit", *_PLACEMENT):
        return True
    if name == "-ncmoe" and said.says("-cmoe", "-ot"):
        return True
    if name.startswith(_SPEC) or name == SPEC_TYPE:
        # Speculation of the host's own: nothing of ours in it.
        return host_speculates(said) or (plan.draft is None and said.says(SPEC_TYPE, DRAFTER))
    return False


def _all_open(name: str, said: Arguments) -> bool:
    """Whether all that was said of a flag is that the server may choose."""
    items = [item for item in said.items if item.name == name]
    return name not in said.variables and bool(items) and all(map(_leaves_open, items))


def _leaves_open(item: Item) -> bool:
    """Whether the flag says only that the server may choose, which the plan has done."""
    if item.name in ("-ngl", "-np", "-t", "-tb"):
        return item.values[-1] in ("auto", "-1")
    return False


def places_itself(arguments: Arguments) -> bool:
    """Whether the host says more of where weights lie than a number of layers."""
    return arguments.says(*_PLACEMENT) and arguments.last("-dev") != "none"


def _int(arguments: Arguments, name: str) -> int | None:
    text = arguments.last(name)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise NotOurs(f"the value of {name} is no number") from None
    if value < 0:
        raise NotOurs(f"the value of {name} is below 0")
    return value

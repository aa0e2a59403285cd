"""What a host's arguments mean: the server's flags read as it reads them, old spellings in today's.

Argument lists of all hosts: tests/dropin. Values stay where they are and are referred to by number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..plan import HostRequest
from . import old
from .answer import INDEX, LITERAL, VALUE
from .call import flag_of
from .flags import FlagTable
from .handover import NotOurs


@dataclass(frozen=True)
class Item:
    """One flag with its values.

    Attributes:
        name: the first spelling in the server's help, e.g. ``-m``, or the flag itself.
        flag: as it will be passed on.
        values: its values, in words.
        words: what is passed on, see :class:`~.answer.Answer`.
    """

    name: str
    flag: str
    values: tuple[str, ...]
    words: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Arguments:
    """A command line in our words.

    Attributes:
        items: in order.
        variables: flags that the environment sets (``LLAMA_ARG_*``), by name; arguments win.
        unset: variables that this server would refuse and whose meaning is in ``items``.
        notes: what was translated or left out, in words.
    """

    items: tuple[Item, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def last(self, *names: str) -> str | None:
        """The value in force of a flag; its spelling for one without values."""
        for item in reversed(self.items):
            if item.name in names:
                return item.values[-1] if item.values else item.flag
        return next((self.variables[name] for name in names if name in self.variables), None)

    def all(self, name: str) -> tuple[str, ...]:
        """All values of a flag that adds up, those of the environment first."""
        said = tuple(item.values[-1] for item in self.items if item.name == name and item.values)
        return (*((self.variables[name],) if name in self.variables else ()), *said)

    def says(self, *names: str) -> bool:
        """Whether host or user said any of these, by argument or by variable."""
        return self.last(*names) is not None


def parse(argv: Sequence[str], env: Mapping[str, str], table: FlagTable) -> Arguments:
    """Reads a command line for a server with these flags.

    Raises:
        NotOurs: it holds what the server does not know, or something is missing.
    """
    found = _split(argv, table)
    spec_types = [t for item in found if item.name == "--spec-type" for t in _list(item.values)]
    spec_types += _list((env.get("LLAMA_ARG_SPEC_TYPE", ""),))
    items: list[Item] = []
    notes: list[str] = []
    loading = [i.flag for i in found if old.is_loading(i.flag) and not table.knows(i.flag)]
    for item in found:
        if table.knows(item.flag):
            items.append(item)
        elif item.flag in loading:
            if item.flag == loading[-1] and not any(i.name == _LOAD_MODE for i in found):
                mode = old.load_mode(loading)
                said = ((LITERAL, "--load-mode"), (LITERAL, mode))
                items.append(Item(_LOAD_MODE, "--load-mode", (mode,), said))
                notes.append(f"{', '.join(loading)} said as --load-mode {mode}")
        elif new := old.renamed(item.flag, spec_types, table):
            words = ((LITERAL, new), *item.words[1:])
            items.append(Item(_name(new, table), new, item.values, words))
            notes.append(f"{item.flag} said as {new}")
        elif item.flag in old.HARMLESS:
            notes.append(f"{item.flag} left out: this server has no such option")
        else:
            raise NotOurs(f"our server does not know {item.flag}")
    unset, more = _old_variables(env, spec_types, table)
    return Arguments((*more, *items), _variables(env, table), unset, tuple(notes))


_LOAD_MODE = "-lm"


def _split(argv: Sequence[str], table: FlagTable) -> list[Item]:
    found: list[Item] = []
    i = 0
    while i < len(argv):
        flag, equals, value = argv[i].partition("=")
        flag = flag_of(flag)
        n = old.n_values(flag, table)
        if n is None or not flag.startswith("-"):
            # not the value of anything, perhaps a secret: its text is told to nobody
            raise NotOurs(f"our server does not know {flag if flag[:1] == '-' else 'an argument'}")
        if equals:
            if n != 1:
                raise NotOurs(f"{flag} takes no value after =")
            words = [(LITERAL, flag), (VALUE, str(i))]
            values = [value]
            i += 1
        else:
            words = [(INDEX, str(i))]
            values = list(argv[i + 1 : i + 1 + n])
            if n and flag in _SWITCH_ONCE and (not values or values[0].startswith("-")):
                words, values = [(LITERAL, flag), (LITERAL, "on")], ["on"]
                i += 1
            elif len(values) < n:
                raise NotOurs(f"{flag} has no value")
            else:
                words += [(INDEX, str(k)) for k in range(i + 1, i + 1 + n)]
                i += 1 + n
        found.append(Item(_name(flag, table), flag, tuple(values), tuple(words)))
    return found


# Before it took a value, this was a switch.
_SWITCH_ONCE = ("-fa", "--flash-attn")


def _name(flag: str, table: FlagTable) -> str:
    known = table.by_name.get(flag)
    return known.names[0] if known else flag


def _list(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in value.split(",") if word]


def _variables(env: Mapping[str, str], table: FlagTable) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable, flag in table.by_env.items():
        if flag.removed:
            continue
        negated = variable.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")
        if variable in env:
            found[flag.names[0]] = env[variable]
        elif flag.values == 0 and negated in env:
            found[flag.names[0]] = "0"
    return found


def _old_variables(
    env: Mapping[str, str], spec_types: Sequence[str], table: FlagTable
) -> tuple[tuple[str, ...], list[Item]]:
    """Variables that end this server, as arguments."""
    unset: list[str] = []
    items: list[Item] = []
    for variable, flag in table.by_env.items():
        if not flag.removed or variable not in env:
            continue
        unset.append(variable)
        new = next((n for name in flag.names if (n := old.renamed(name, spec_types, table))), None)
        if new and env[variable]:
            words = ((LITERAL, new), (LITERAL, env[variable]))
            items.append(Item(_name(new, table), new, (env[variable],), words))
    return tuple(unset), items


_CHOOSE = ("auto", "-1", "")
_ALL_LAYERS = 1 << 16


def to_request(arguments: Arguments, env: Mapping[str, str]) -> HostRequest:
    """What the planner is asked; what the host left open stays open.

    Raises:
        NotOurs: there is no model file, or this is no server that generates text.
    """
    for flag, why in _OTHER_WORK.items():
        said = arguments.last(flag)
        if said is not None and said not in ("0", "false", "off", "none"):
            raise NotOurs(why)
    for flag in ("-hf", "-mu", "-dr"):
        if arguments.says(flag):
            raise NotOurs(f"{flag} names a model to download")
    for item in arguments.items:
        if item.name.endswith(_PRESETS) and item.name != "--spec-default":
            raise NotOurs(f"{item.name} is a preset of models to download")
    model = arguments.last("-m")
    if not model or not Path(model).is_file():
        raise NotOurs("the model file is not there")
    projector = arguments.last("-mm")
    if projector and _same(projector, model):
        raise NotOurs("model and projector are one file, which only the host's server takes apart")
    parallel = _number(arguments, "-np") or 1
    ctx = _number(arguments, "-c")
    threads = _number(arguments, "-t")
    return HostRequest(
        model=Path(model),
        draft=_draft(arguments, env),
        # llama-server divides its context among the slots; 0 is the model's longest, see decide
        ctx=max(ctx // parallel, 1) if ctx else None,
        parallel=parallel,
        threads=threads or None,
        gpu_layers=_gpu_layers(arguments),
        cache_type_k=arguments.last("-ctk"),
        cache_type_v=arguments.last("-ctv"),
        mmproj=Path(projector) if projector else None,
        relax=_relax(env),
    )


_PRESETS = ("-default", "-spec")
_OTHER_WORK = {
    "--embedding": "it serves embeddings and generates no text",
    "--rerank": "it ranks documents and generates no text",
    "--pooling": "it serves embeddings and generates no text",
}


def full_context(arguments: Arguments) -> bool:
    """Whether the host asked for all that the model was trained for."""
    return arguments.last("-c") == "0"


def _number(arguments: Arguments, name: str) -> int | None:
    """A whole number above 0; ``None`` where the server is to choose."""
    text = arguments.last(name)
    if text is None or text in _CHOOSE:
        return None
    try:
        value = int(text)
    except ValueError:
        raise NotOurs(f"the value of {name} is no number") from None
    if value < 0:
        return None
    return value


def _gpu_layers(arguments: Arguments) -> int | None:
    if arguments.last("-dev") == "none":
        return 0
    text = arguments.last("-ngl")
    if text in ("all", "-2"):
        return _ALL_LAYERS
    return _number(arguments, "-ngl")


def _relax(env: Mapping[str, str]) -> float:
    try:
        return float(env.get("SRHPM_RELAX") or 0.0)
    except ValueError:
        raise NotOurs("SRHPM_RELAX is no number of nats") from None


SPEC_TYPE, DRAFTER, DRAFTER_REPO = "--spec-type", "--spec-draft-model", "--spec-draft-hf"


def spec_types(arguments: Arguments) -> list[str]:
    """The drafters that the host named, ``none`` left out."""
    return [t for t in _list(arguments.all(SPEC_TYPE)) if t != "none"]


def host_speculates(arguments: Arguments) -> bool:
    """Whether speculation is the host's own, to be left as it set it: all but a drafter model of
    the simple kind and the target's own MTP head, which the planner knows."""
    types = spec_types(arguments)
    if arguments.says(DRAFTER_REPO) or arguments.says("--spec-default"):
        return True
    drafter = arguments.last(DRAFTER)
    if drafter:
        return types not in ([], ["draft-simple"])
    return types not in ([], ["draft-mtp"])


def _draft(arguments: Arguments, env: Mapping[str, str]) -> str:
    types = spec_types(arguments)
    if host_speculates(arguments) or (arguments.says(SPEC_TYPE) and not types):
        return "none"
    drafter = arguments.last(DRAFTER)
    if drafter:
        return drafter
    if types:
        return "auto"  # the planner takes an MTP head before anything else
    return env.get("SRHPM_DRAFT") or "auto"


def _same(a: str, b: str) -> bool:
    try:
        return Path(a).samefile(b)
    except OSError:
        return False

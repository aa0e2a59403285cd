"""A decision made anew: the call becomes a request, the request a plan, the plan an answer.

Whatever speaks against our server, the host's own runs, with the reason in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..backend import Backend
from ..errors import UserError
from ..host import Translated
from ..machine.probe import probe
from ..machine.types import Machine
from ..model import ModelInfo
from ..native.locate import build_info
from ..plan import HostRequest, LaunchPlan
from ..planner.cost import pairs
from ..planner.headers import read_header
from ..planner.hosted import label
from ..planner.kind import wanted_ctx
from ..planner.make import make_plan
from ..planner.measured import plan_key
from ..planner.memory import CPU
from ..planner.room import reserve
from ..planner.sources import known_models
from ..plugins import plugins
from . import arguments as words
from . import context, router, slots
from .arguments import Arguments
from .borrow import NotLent, files_of, lent, passed_on
from .cache import Kept, watch
from .call import Call
from .flags import FlagTable, flags_of
from .gpu import host_gpu
from .gpumemory import Room
from .handover import BUILD, NotOurs, hand_over
from .merge import host_columns, host_drafts, merge, places_itself
from .translate import name_of, translate

# What the planner counts compute buffers for.
_UBATCH = 512
_MOST_WATCHED = 256


@dataclass(frozen=True)
class _Facts:
    """What is known on the way."""

    call: Call
    backend: Backend
    server: Path
    table: FlagTable
    said: Arguments


# Predictions are no better than this, and what they do not count (prompts, which our kernels read
# faster) speaks for ours. A measured speed is none to compare with: the machine may have been busy.
_AS_GOOD = 0.95


class _Passing(NotOurs):
    """A reason that may be gone at the next start although nothing in the key changes."""


def decide(call: Call) -> tuple[Kept, bool]:
    """The decision, and whether it may be kept.

    Raises:
        NotOurs: neither the host's server nor ours can be run.
    """
    if not call.names_a_model():
        return router.decision(call) or hand_over(call, "no model is named"), False
    facts: dict[str, Any] = {"host": call.note.host}
    lasting = False
    try:
        return _on_ours(call, facts)
    except NotOurs as error:
        why, lasting = str(error), not isinstance(error, _Passing)
    except UserError as error:
        # What is about memory, or a plugin's fault, may be gone at the next start.
        why = error.line()
    except Exception as error:
        why = f"the decision failed ({type(error).__name__}: {error})"
    if "model" not in facts and (file := next(iter(_models(call)), None)):
        facts["model"] = name_of(call, Path(file))
    return hand_over(call, why, facts), lasting


def _on_ours(call: Call, facts: dict[str, Any]) -> tuple[Kept, bool]:
    known = _known(call)
    request = words.to_request(known.said, call.env)
    facts["path"] = str(request.model)
    if words.full_context(known.said):
        header = read_header(request.model)
        request = replace(request, ctx=(header.n_ctx_train // request.parallel) or None)
    told = translate(call, request)
    facts["model"] = told.model
    if call.note.mode == "select" and not told.picked:
        raise NotOurs("it was not picked to run on SR-HPM")
    libraries = _gpu(known, told.request)
    header = read_header(told.request.model)
    _check_model(header, known.server)
    with passed_on(libraries, call.env):
        machine = probe(known.server)
        plan, overruled, squeezed = _plan(known, told, request, machine)
    facts |= _describe(plan)
    if not told.picked:
        _gain(plan)
    kept = _answer(known, told, plan, overruled, squeezed, facts)
    if libraries:
        answer = replace(kept.answer, env={**kept.answer.env, **libraries})
        kept = replace(kept, answer=answer)
    watched = {**kept.watched, **watch(files_of(libraries))}
    gpus = Room.of(plan, machine) if told.request.gpu_layers != 0 else ()
    return replace(kept, gpus=gpus, watched=watched), True


def _models(call: Call) -> Iterable[str]:
    for flag, value in zip(call.argv, call.argv[1:], strict=False):
        if flag in ("-m", "--model"):
            yield value
    yield from (a.partition("=")[2] for a in call.argv if a.startswith("--model="))
    yield from filter(None, [call.env.get("LLAMA_ARG_MODEL")])


def _known(call: Call) -> _Facts:
    backend = plugins().backend("srhpm")
    server = backend.server()
    if server is None:
        raise NotOurs(f"our server is not built: type {backend.missing()}")
    table = flags_of(server)
    if table is None:
        raise _Passing(f"our server does not start: type {backend.missing()} --force")
    return _Facts(call, backend, server, table, words.parse(call.argv, call.env, table))


def _gpu(known: _Facts, request: HostRequest) -> dict[str, str | None]:
    """What our server must be told so that it can use the GPU that the host's server uses.

    Raises:
        NotOurs: the host's server can use one and ours cannot.
    """
    from ..machine.gpus import server_gpus

    call = known.call
    original = call.original
    if original is None or request.gpu_layers == 0:
        return {}
    named = known.said.last("-dev")
    theirs = host_gpu(original, call.env, wanted=named not in (None, "none"))
    if theirs is None or server_gpus(known.server, []):
        return {}
    try:
        libraries = lent(call.note.host, original, call.env, known.server)
    except NotLent as why:
        libraries, reason = None, str(why)
    else:
        reason = "ours is built without it"
    if libraries:
        # In a process of its own first: what a library does when it is loaded is its own affair.
        with passed_on(libraries, call.env):
            if server_gpus(known.server, []):
                return libraries
        reason = "ours finds no GPU with its libraries"
    raise NotOurs(
        f"the host's server uses the GPU {theirs}; {reason}: "
        f"type {BUILD} --match {call.note.host}, or {BUILD} --cuda"
    )


def _check_model(model: ModelInfo, server: Path) -> None:
    """Files that only the host's server can load.

    Raises:
        NotOurs: it is one.
    """
    known = build_info(server.parent.parent).get("architectures")
    if isinstance(known, list) and known and model.arch not in known:
        raise NotOurs(f"our server does not know the architecture {model.arch}")
    if any(t.name.startswith(("v.", "mm.", "a.")) for t in model.tensors):
        raise NotOurs(
            "the model's file holds its projector too, which only the host's server takes apart"
        )


def _plan(
    known: _Facts, told: Translated, asked: HostRequest, machine: Machine
) -> tuple[LaunchPlan, tuple[str, ...], bool]:
    """The plan with the host's draft lengths, the flags of the host's that it takes the place of,
    and whether something was given up for want of room."""
    request = told.request
    overruled = told.overruled
    if request.draft != asked.draft:
        overruled += tuple(i.name for i in known.said.items if i.name.startswith("--spec"))
        overruled += tuple(n for n in known.said.variables if n.startswith("--spec"))
    plan = _make(request, told.drafters, machine)
    own = not overruled and words.spec_types(known.said) == ["draft-mtp"]
    if own and request.draft == "auto" and (plan.draft is None or plan.draft.type != "draft-mtp"):
        # The host sees a head that we do not: its speculation stays its own.
        plan = _make(replace(request, draft="none"), (), machine)
        overruled = ()
    squeezed = (request.ctx is None and plan.ctx < wanted_ctx(request, plan.model)) or (
        plan.kernels == "off" and request.kernels != "off"
    )
    if request.ctx is None and not squeezed:
        plan = context.longest(plan, request, machine)
    if slots.left_open(known.said):
        plan = slots.shared(plan, request, machine) or plan
    if not overruled:
        plan = host_drafts(plan, known.said)
    return plan, overruled, squeezed


def _make(request: HostRequest, drafters: Sequence[Path], machine: Machine) -> LaunchPlan:
    if request.draft != "auto":
        return make_plan(request, machine=machine, command=False)
    if drafters:
        plan = make_plan(request, machine=machine, known=drafters, command=False)
        if plan.draft is not None and plan.draft.type != "ngram":
            return plan
    known = (*drafters, *known_models(near=request.model))
    return make_plan(request, machine=machine, known=known, command=False)


def _describe(plan: LaunchPlan) -> dict[str, Any]:
    draft = plan.draft
    drafter = None
    if draft is not None:
        drafter = f"{draft.type} {label(draft.path)}" if draft.path else draft.type
    return {
        "kind": plan.kind,
        "drafter": drafter,
        "kernels": plan.kernels,
        "predicted": plan.predicted.tok_s,
        "stock": plan.predicted.stock_tok_s,
        "reason": plan.reasons[0].removeprefix(f"{plan.kind}: ") if plan.reasons else "",
    }


def _gain(plan: LaunchPlan) -> None:
    """Whether our server is expected to be faster, by what is known.

    Raises:
        NotOurs: it is not.
    """
    if plan.kind == "stock":
        raise NotOurs(plan.draft_off_reason or "no plan of ours serves this model")
    ours, stock = plan.predicted.tok_s, plan.predicted.stock_tok_s
    if ours is not None and stock is not None and plan.predicted.basis == "calibrated":
        if ours < stock * _AS_GOOD:
            raise NotOurs(f"predicted {ours:.1f} tok/s against {stock:.1f} of the host's server")
        return
    drafts = plan.draft is not None and plan.draft.type != "ngram"
    in_ram = plan.kind in ("srhpm", "moe") and plan.kernels != "off" and _packed(plan)
    if not (drafts or in_ram):
        raise NotOurs(
            "nothing speaks for a gain: no drafter was found, and no weights in RAM that our "
            "kernels multiply by"
        )


def _packed(plan: LaunchPlan) -> bool:
    """Whether our kernels multiply by the weights, as the planner counts them."""
    from ..machine.isa import host_isa

    ask = getattr(plugins().backend(plan.backend), "kernels", None)
    if ask is None or plan.gpu_layers:
        return False
    return ask(tuple(plan.model.quant_mix), plan.kernels, host_isa()).isa is not None


def _rests_on(plan: LaunchPlan) -> str:
    """What the expectation of a gain rests on, in words."""
    ours, stock = plan.predicted.tok_s, plan.predicted.stock_tok_s
    if ours is not None and stock is not None and plan.predicted.basis == "calibrated":
        return f"{ours:.1f} tok/s predicted against {stock:.1f} ({plan.predicted.basis})"
    parts = []
    if plan.kind in ("srhpm", "moe") and _packed(plan):
        parts.append("our kernels for weights in RAM")
    if plan.draft is not None:
        name = f" {label(plan.draft.path)}" if plan.draft.path else ""
        parts.append(f"the drafter {plan.draft.type}{name}")
    if not parts:
        return "picked by the user"
    return f"a gain is expected of {' and '.join(parts)}, not measured yet"


def _manners(call: Call) -> dict[str, str]:
    """How the host wants to be told of a failed load (native/overlay/common/srhpm-startup.h), and
    of tokens (srhpm-events.h)."""
    told = {"SRHPM_STARTUP_ERROR": "startup_error", "SRHPM_EVENTS": "events"}
    facts = call.note.facts
    return {v: facts[f] for v, f in told.items() if f in facts and not call.env.get(v)}


def _answer(
    known: _Facts,
    told: Translated,
    plan: LaunchPlan,
    overruled: tuple[str, ...],
    squeezed: bool,
    facts: dict[str, Any],
) -> Kept:
    said = known.said
    start = known.backend.command(plan)
    over_one_context = slots.left_open(said) and plan.parallel > 1
    argv = (*start.argv, slots.SHARED) if over_one_context else start.argv
    plan = replace(plan, argv=argv, env=start.env)
    speculates = not overruled and words.host_speculates(said)
    if speculates:
        columns = str(host_columns(plan, said))
        if "SRHPM_EXACT" in plan.env and int(columns) > int(plan.env["SRHPM_EXACT"]):
            plan = replace(plan, env={**plan.env, "SRHPM_EXACT": columns})
        facts["drafter"] = "the host's own"
    placed_by_host = places_itself(said) and any(use.device != CPU for use in plan.memory)
    # What is measured where the host decides is not the plan's.
    facts["plan"] = None if speculates or placed_by_host else plan_key(plan)
    facts["pair"] = None if speculates else pairs.policy(plan)
    answer = merge(
        plan,
        said,
        known.table,
        known.call.env,
        overruled=overruled,
        placed_by_host=placed_by_host,
    )
    answer = replace(answer, env={**answer.env, **_manners(known.call)})
    needs = _needs(plan, said)
    free = next((use.free for use in plan.memory if use.device == CPU), 0)
    if needs > free:
        raise _Passing(
            f"too little memory: it needs {needs >> 20} MiB with what the host asks for, "
            f"{free >> 20} MiB are free"
        )
    facts |= {
        "live": _keeps_record(known.server),
        "needs": needs,
        "reason": f"{facts['reason']}; {_rests_on(plan)}",
        "notes": list(said.notes),
        "warnings": list(plan.warnings),
    }
    watched = watch(_watched(plan, told))
    return Kept(answer, facts, needs, squeezed=free if squeezed else 0, watched=watched)


def _keeps_record(server: Path) -> bool:
    """Whether the server says how it fares, see :mod:`.records`."""
    hooks = build_info(server.parent.parent).get("hooks")
    return isinstance(hooks, list) and any(
        isinstance(h, dict) and h.get("name") == "record-start" and h.get("applied") for h in hooks
    )


def _needs(plan: LaunchPlan, said: Arguments) -> int:
    """Bytes of RAM: the plan's, and what the host asks for beyond what the planner counts."""
    needs = 0
    for use in plan.memory:
        if use.device == CPU:
            needs = use.total + reserve(CPU, _NO_GPUS)
            ubatch = said.last("-ub")
            if ubatch and ubatch.isdecimal() and int(ubatch) > _UBATCH:
                needs += use.compute * (int(ubatch) - _UBATCH) // _UBATCH
    for name in ("--lora", "--lora-scaled", "--control-vector", words.DRAFTER):
        if name == words.DRAFTER and plan.draft is not None:
            continue  # counted by the planner
        for value in said.all(name):
            for file in value.split(","):
                path = Path(file if Path(file).is_file() else file.rpartition(":")[0])
                needs += path.stat().st_size if file and path.is_file() else 0
    return needs


class _NoGpus:
    """Of a machine, what :func:`reserve` asks for."""

    gpus = ()


_NO_GPUS: Any = _NoGpus()


def _watched(plan: LaunchPlan, told: Translated) -> list[Path]:
    """Files and folders of which a change asks for another decision: the drafter, and the folders
    in which a better one may appear."""
    files = [*told.rests_on]
    files += [plan.draft.path] if plan.draft is not None and plan.draft.path else []
    if told.request.draft != "auto":
        return files
    roots = {path for group in plugins().hook.srhpm_model_sources() for path in group}
    # A new folder shows in the one it was made in, a new file in its own: all of them up to the
    # place that is searched, and no further, as what lies above changes all the time.
    folders = dict.fromkeys((told.request.model.absolute().parent, *roots))
    for path in (*told.drafters, *known_models(near=told.request.model)):
        above = list(path.parents)
        inside = next((i for i, folder in enumerate(above) if folder in roots), 0)
        folders.update(dict.fromkeys(above[: inside + 1]))
    return [*files, *folders][:_MOST_WATCHED]

"""From a model and a request's needs to a plan and a command. Blocking: called in threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..backend import Command
from ..errors import UserError
from ..machine.probe import probe
from ..machine.types import Machine
from ..plan import HostRequest, LaunchPlan
from ..planner.headers import read_header
from ..planner.make import make_plan
from ..planner.sources import known_models
from ..plugins import plugins
from .budget import Resident, as_good, beside, without
from .interfaces import Need, ServedModel
from .settings import Settings

# A text to embed must fit into one pass, whose buffers grow with it.
_LONGEST_EMBEDDED = 8192


def wanted_ctx(model: ServedModel, need: Need, settings: Settings) -> int | None:
    """The context per slot that is asked for, tokens; ``None`` leaves it to the plan."""
    return need.ctx or model.ctx or settings.ctx


def machine_now(settings: Settings) -> Machine:
    """The machine as it is at this moment."""
    return probe(plugins().backend(settings.backend).server())


def plan_beside(
    model: ServedModel,
    need: Need,
    settings: Settings,
    machine: Machine,
    loaded: Sequence[Resident],
) -> LaunchPlan | None:
    """The plan for a model beside those loaded; ``None`` if one of them has to leave first, because
    the model does not fit or would run worse.

    Raises:
        UserError: it cannot be run, not even alone.
    """
    best = plan_for(model, need, settings, without(machine, loaded))
    if not loaded:
        return best
    try:
        plan = plan_for(model, need, settings, beside(machine, loaded))
    except UserError:
        return None
    return plan if as_good(plan, best) else None


def plan_for(model: ServedModel, need: Need, settings: Settings, machine: Machine) -> LaunchPlan:
    """The plan on ``machine``.

    Raises:
        UserError: there is none.
    """
    header = read_header(model.path)
    request = HostRequest(
        model=model.path,
        draft="none" if need.embedding else settings.draft,
        ctx=wanted_ctx(model, need, settings),
        parallel=settings.parallel,
        threads=need.threads,
        gpu_layers=need.gpu_layers,
        mmproj=None if need.embedding else model.mmproj,
        backend=settings.backend,
    )
    if need.embedding and request.ctx is None:
        longest = min(header.n_ctx_train or _LONGEST_EMBEDDED, _LONGEST_EMBEDDED)
        request = replace(request, ctx=longest)
    if request.draft == "auto" and model.drafter is not None:
        # The store's own drafter comes first, as in the drop-in.
        plan = make_plan(request, model=header, machine=machine, known=(model.drafter,))
        if plan.draft is not None and plan.draft.type != "ngram":
            return plan
    known = known_models(near=model.path) if request.draft == "auto" else None
    return make_plan(request, model=header, machine=machine, known=known)


def command_of(plan: LaunchPlan, model: ServedModel, need: Need) -> Command:
    """What starts the server."""
    argv = list(plan.argv)
    for adapter in model.adapters:
        argv += ["--lora", str(adapter)]
    if need.embedding:
        batch = str(plan.ctx)
        argv += ["--embeddings", "--batch-size", batch, "--ubatch-size", batch]
        if f"{plan.model.arch}.pooling_type" not in plan.model.metadata:
            # Language models state none. Only the last token has seen all the others.
            argv += ["--pooling", "last"]
    return Command(tuple(argv), plan.env)


def ready_path(plan: LaunchPlan) -> str:
    """Answers 200 when the server is ready."""
    return plugins().backend(plan.backend).ready_url("")

"""From a request to a launch plan: the steps in order. Each is a hook; see hookspecs.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..backend import Backend
from ..errors import UserError
from ..machine.probe import probe
from ..machine.types import Machine
from ..machine.workers import read_workers
from ..model import ModelInfo
from ..plan import DraftChoice, HostRequest, LaunchPlan, PlanKind, Predicted
from ..plugins import plugins
from .caches import add_caches
from .checks import check_cache_types, check_request
from .cost.costs import why_unknown
from .cost.speculation import Speculation
from .drafter import ngram_draft
from .headers import read_header
from .kernels import asked, kernel_reasons, setting_of
from .kind import outline, wanted_ctx
from .names import find_model
from .outline import PlanOutline
from .place import all_layers
from .refusal import refusal
from .rollback import may_choose, rollback
from .room import Settled, fits, largest_ctx, settle
from .sources import known_models
from .units import size
from .weights import trunk_bytes


def make_plan(
    request: HostRequest,
    *,
    model: ModelInfo | None = None,
    machine: Machine | None = None,
    known: Sequence[Path] | None = None,
    command: bool = True,
) -> LaunchPlan:
    """Plans a launch.

    Args:
        request: what was asked for; ``request.model`` may be a known model's name.
        model: the target's header; read from ``request.model`` when not given.
        machine: the hardware; probed when not given.
        known: model files among which a drafter may be chosen; searched when not given.
        command: ask the backend for ``argv`` and ``env``; without it both are empty and no server
            program is needed.

    Raises:
        UserError: the request is impossible, the model cannot be read, it does not fit, the named
            drafter cannot pair, or the backend has no server program.
    """
    check_request(request)
    backend = plugins().backend(request.backend)
    if model is None:
        request = replace(request, model=find_model(request.model.as_posix()))
        model = read_header(request.model)
    check_cache_types(request, model)
    machine = machine or with_workers(probe(backend.server()), request, backend)
    hook = plugins().hook
    here = replace(machine, gpus=tuple(gpu for gpu in machine.gpus if not gpu.link))
    kind, why = hook.srhpm_plan_kind(request=request, model=model, machine=here)
    if kind == "stock":
        choice = DraftChoice(None, off_reason=why)
    else:
        choice = _draft(request, model, machine, known)
    threads, threads_why = hook.srhpm_plan_threads(request=request, machine=machine)
    start = replace(outline(request, model, machine, kind, choice), threads=threads)
    plan, choice = _settle(start, why, threads_why)
    plan = _speculate(start, plan, choice, (why, threads_why))
    return _finish(plan, machine, backend, command)


def with_workers(machine: Machine, request: HostRequest, backend: Backend) -> Machine:
    """``machine`` and behind its GPUs the devices of the request's RPC workers, measured.

    Raises:
        UserError: a worker does not answer, or the backend's server cannot use any.
    """
    if not request.rpc:
        return machine
    places = getattr(backend, "layer_sets", None)
    if places is None or not places():
        raise UserError(
            "no layers for RPC workers",
            f"the server of backend {backend.name} cannot be told which layers go where",
            "leave --rpc out, or choose --backend srhpm and type srhpm-plugin native build",
        )
    return replace(machine, gpus=(*machine.gpus, *read_workers(request.rpc, backend.server())))


def _settle(start: PlanOutline, why: str, threads_why: str) -> tuple[LaunchPlan, DraftChoice]:
    """The plan with everything in its place, and the drafter that there was room for."""
    request, model, kind = start.request, start.model, start.kind
    settled, fit_why = _fit_with_kernels(start)
    settled, cache_why = add_caches(settled)
    if kind in ("all-gpu", "moe") and settled.plan.gpu_layers < all_layers(model):
        kind, why = "srhpm", f"{why}; not so with the drafter, which pushes layers into RAM"
    reasons = (
        f"{kind}: {why}",
        *settled.plan.choice.reasons,
        *settled.reasons,
        *kernel_reasons(settled.plan),
        threads_why,
        *_ctx_reasons(request, model),
        *fit_why,
        *cache_why,
        *start.machine.notes,
    )
    return _plan(request, settled, kind, reasons), settled.plan.choice


def _speculate(
    start: PlanOutline, plan: LaunchPlan, choice: DraftChoice, words: tuple[str, str]
) -> LaunchPlan:
    """The plan with the lengths that pay, with n-grams where a model that nobody asked for would
    lose, or without a drafter. What changes takes other room, so all is placed again."""
    said = _ask_speculation(start, plan)
    if said is None:
        return plan
    if said.draft == plan.draft:
        return replace(plan, reasons=(*plan.reasons, *said.reasons))
    if said.draft is not None:
        other = replace(choice, draft=said.draft, reasons=(*choice.reasons, *said.reasons))
        return _settle(replace(start, choice=other), *words)[0]
    reasons = (*choice.reasons, f"no drafting: {said.off_reason}")
    none = DraftChoice(None, off_reason=said.off_reason, reasons=reasons)
    if plan.draft is not None and plan.draft.type != "ngram":
        ngrams = DraftChoice(ngram_draft(), reasons=(*reasons, "n-grams draft instead"))
        again, _ = _settle(replace(start, choice=ngrams), *words)
        said = _ask_speculation(start, again)
        if said is None or said.draft == again.draft:
            return again
        if said.draft is not None:
            ngrams = replace(ngrams, draft=said.draft, reasons=(*ngrams.reasons, *said.reasons))
            return _settle(replace(start, choice=ngrams), *words)[0]
    return _settle(replace(start, choice=none), *words)[0]


def _ask_speculation(start: PlanOutline, plan: LaunchPlan) -> Speculation | None:
    said: Speculation | None = plugins().hook.srhpm_plan_speculation(
        plan=plan, machine=start.machine, asked=start.request.draft != "auto"
    )
    return said


def _draft(
    request: HostRequest, model: ModelInfo, machine: Machine, known: Sequence[Path] | None
) -> DraftChoice:
    if known is None:
        known = known_models(near=request.model) if request.draft == "auto" else ()
    choice: DraftChoice = plugins().hook.srhpm_plan_draft(
        request=request, model=model, machine=machine, known=known
    )
    return choice


def _fit_with_kernels(start: PlanOutline) -> tuple[Settled, tuple[str, ...]]:
    """Gives up kernels nobody asked for where weights fit only as the file has them."""
    if not start.packed or asked(start.request):
        return _fit(start)
    unpacked = replace(start, packed=False)
    try:
        if _good(settle(start)) or not _good(settle(unpacked)):
            return _fit(start)
    except UserError:
        pass  # refused as packed; as the file has them the weights may be fewer
    settled, why = _fit(unpacked)
    packed = size(trunk_bytes(start.model, packed=True))
    return settled, (*why, f"kernels off: packed for them the weights take {packed}, too much here")


def _fit(start: PlanOutline) -> tuple[Settled, tuple[str, ...]]:
    """Places the plan; gives up a drafter nobody asked for, then context nobody asked for, where
    that makes it good."""
    settled, kept_why = _settle_states(start)
    if _good(settled):
        return settled, kept_why
    request, draft = start.request, start.choice.draft
    if request.draft == "auto" and draft is not None and draft.type != "ngram":
        why = (*start.choice.reasons[:-1], _dropped(settled))
        bare = replace(start.choice, draft=ngram_draft(), model=None, reasons=why)
        without, kept_why = _settle_states(replace(start, choice=bare))
        if _good(without):
            return without, kept_why
        if settled.short:
            settled, start = without, replace(start, choice=bare)
    if request.ctx is None:
        best = largest_ctx(start, start.ctx, _good) or largest_ctx(start, start.ctx)
        if best is not None and best < start.ctx:
            why = (f"context cut from {start.ctx} to {best} tokens: no more fits",)
            return settle(replace(start, ctx=best)), why
    if settled.short:
        raise refusal(settled)
    return settled, ()


def _settle_states(start: PlanOutline) -> tuple[Settled, tuple[str, ...]]:
    """Copies the states of a recurrent model before each verification where that, and not keeping
    those of the last tokens, makes the plan good."""
    settled = settle(start)
    if _good(settled) or not may_choose(start):
        return settled, ()
    copying = settle(replace(start, rollback="copy"))
    if not _good(copying):
        return settled, ()
    planes = rollback(start).planes
    took = size(sum(use.rollback for use in settled.memory))
    return copying, (
        f"the recurrent state is copied before each draft: {planes} more of it beside the model "
        f"({took}) are too much here",
    )


def _good(settled: Settled) -> bool:
    """The plan fits, and a model that fits a GPU whole is not pushed off it."""
    plan = settled.plan
    pushed = plan.kind == "all-gpu" and plan.gpu_layers < all_layers(plan.model)
    return fits(settled) and not pushed


def _dropped(settled: Settled) -> str:
    took = sum(use.draft + use.rollback for use in settled.memory)
    draft = settled.plan.choice.draft
    name = "the MTP head" if draft and draft.type == "draft-mtp" else "a drafter"
    effect = "does not fit" if settled.short else "would push layers of the model off the GPU"
    return f"{name} with its {size(took)} {effect}: n-grams draft instead"


def _ctx_reasons(request: HostRequest, model: ModelInfo) -> tuple[str, ...]:
    ctx = wanted_ctx(request, model)
    if request.ctx is None:
        return (f"context of {ctx} tokens by default (--ctx N for another)",)
    return _warnings(request, model)


def _warnings(request: HostRequest, model: ModelInfo) -> tuple[str, ...]:
    """Where the plan is not what was asked for."""
    ctx = wanted_ctx(request, model)
    if request.ctx is not None and ctx < request.ctx:
        return (
            f"context of {ctx} instead of the {request.ctx} tokens asked for: the model was "
            "trained for no more, and the server gives a slot no more",
        )
    return ()


def _plan(
    request: HostRequest, settled: Settled, kind: PlanKind, reasons: tuple[str, ...]
) -> LaunchPlan:
    plan = settled.plan
    # A worker that holds nothing is left out, unless others do: the server counts them all.
    linked = {gpu.name: gpu.link.endpoint for gpu in plan.machine.gpus if gpu.link}
    used = any(use.total for use in settled.memory if use.device in linked)
    return LaunchPlan(
        kind=kind,
        backend=request.backend,
        model=plan.model,
        draft=plan.choice.draft,
        draft_off_reason=plan.choice.off_reason,
        ctx=plan.ctx,
        parallel=request.parallel,
        threads=plan.threads,
        gpu_layers=plan.gpu_layers,
        layer_set=plan.layer_set,
        placement=plan.placement,
        memory=tuple(u for u in settled.memory if used or u.device not in linked),
        rpc=tuple(dict.fromkeys(linked.values())) if used else (),
        predicted=Predicted(),
        cache_type_k=plan.cache_type_k,
        cache_type_v=plan.cache_type_v,
        cache_ram_mib=plan.cache_ram_mib,
        ctx_checkpoints=plan.ctx_checkpoints,
        relax=request.relax,
        mmproj=request.mmproj,
        cpu_moe=plan.cpu_moe,
        kernels=setting_of(plan),
        rollback=plan.rollback,
        reasons=reasons,
        warnings=_warnings(request, plan.model),
    )


def _finish(plan: LaunchPlan, machine: Machine, backend: Backend, command: bool) -> LaunchPlan:
    """What needs a plan to be known: exactness, the prediction, the command."""
    plan = replace(plan, exact=backend.exactness(tuple(plan.model.quant_mix), plan))
    predicted = plugins().hook.srhpm_plan_predict(plan=plan, machine=machine)
    reasons = plan.reasons
    if predicted is None or predicted.tok_s is None:
        reasons += (f"its speed has not been measured on this machine{_unknown(plan, machine)}",)
    plan = replace(plan, predicted=predicted or Predicted(), reasons=reasons)
    if command:
        start = backend.command(plan)
        plan = replace(plan, argv=start.argv, env=start.env)
    return plan


def _unknown(plan: LaunchPlan, machine: Machine) -> str:
    """Why it is not predicted either, as the end of a sentence."""
    why = why_unknown(plan, machine)
    return f", nor can it be predicted: {why}" if why else ""

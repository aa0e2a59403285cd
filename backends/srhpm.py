"""The patched llama-server: adaptive drafting and exact speculation."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from pathlib import Path

from srhpm_plugin.backend import Backend, Command, Kernels
from srhpm_plugin.errors import UserError
from srhpm_plugin.hookspecs import hookimpl
from srhpm_plugin.machine.isa import host_isa
from srhpm_plugin.machine.kernels import chosen_kernels
from srhpm_plugin.native.locate import build_info, find_server
from srhpm_plugin.packing import is_factor
from srhpm_plugin.plan import KernelSetting, LaunchPlan

from .arguments import has_gpu, server_argv, uses_gpu
from .repack import unpacked, varying_types, without_kernels

NAME = "srhpm"
BUILD = "srhpm-plugin native build"

# How long libgomp lets a thread spin while it waits for the others. Its own choice is a
# millisecond: with a busy neighbour on one of two cores that starves the thread waited for
# (passes over 4 tokens: 16 and 23 tokens/s in two runs; with 1000 turns 25 and 28), and on an
# idle machine it gains nothing (90 and 91 against 91 and 90; with 100 turns 79 and 80).
_WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
_SPINS = "1000"

# Plain decoding uses the same setting as speculation up to this many tokens per pass, so that
# short prompts, too, take the same code paths in both.
_LEAST_COLUMNS = 8

VARIABLE = "SRHPM_KERNELS"
_ISA = "SRHPM_ISA"
_GPU_LAYERS = "SRHPM_GPU_LAYERS"
_LAYERS = "layers"  # the hook that reads it
_ROLLBACK = "SRHPM_ROLLBACK"


class SrhpmBackend:
    """See :class:`srhpm_plugin.backend.Backend`."""

    @property
    def name(self) -> str:
        """``srhpm``."""
        return NAME

    def server(self) -> Path | None:
        """The built server, or the one ``SRHPM_SERVER`` names.

        Raises:
            UserError: ``SRHPM_SERVER`` names no file.
        """
        return find_server()

    def missing(self) -> str:
        """The command that builds the server."""
        return BUILD

    def command(self, plan: LaunchPlan) -> Command:
        """``argv`` (without host and port) and environment for the plan.

        Raises:
            UserError: the server is not built.
        """
        program = self.server()
        if program is None:
            raise UserError("no server program", "it is not built yet", f"type: {BUILD}")
        argv = server_argv(plan, program)
        types = tuple(plan.model.quant_mix)
        if not self._packs(types, plan) and _varying(types):
            argv += ["--no-repack"]
        if not uses_gpu(plan) and has_gpu(plan):
            # Even without a layer on it, a GPU is handed norms and rotations of passes over
            # several tokens, and rounds them otherwise than the CPU does for one token.
            argv += ["--device", "none"]
        return Command(tuple(argv), _environment(plan))

    def layer_sets(self) -> bool:
        """Whether the server was built with the hook that places any set of layers on GPUs."""
        program = self.server()
        hooks = build_info(program.parent.parent).get("hooks") if program else None
        if not isinstance(hooks, list):
            return False
        return any(hook.get("name") == _LAYERS and hook.get("applied") for hook in hooks)

    def ready_url(self, base_url: str) -> str:
        """llama-server answers 503 there while it loads."""
        return base_url.rstrip("/") + "/health"

    def kernels(
        self, model_types: tuple[str, ...], setting: KernelSetting, isa: tuple[str, ...]
    ) -> Kernels:
        """Which of our kernels run on weights in RAM, see :class:`srhpm_plugin.backend.Backend`."""
        if setting == "off":
            return Kernels(None, "kernels off as asked: upstream's are used")
        named = os.environ.get(_ISA) or None
        chosen = chosen_kernels(platform.machine(), isa, named)
        if chosen is None:
            which = f" called {named} ({_ISA})" if named else ""
            return Kernels(None, f"no kernels{which} for this processor: upstream's are used")
        # Norms and biases are F32 in every file: they are what a model is made of only alone.
        types = tuple(name for name in model_types if name != "F32") or model_types
        if without_kernels(types) == types:
            return Kernels(None, f"no kernels for {_listed(types)} weights: upstream's are used")
        kept = varying_types(unpacked(types), platform.machine(), isa)
        if kept:
            return Kernels(
                None,
                f"{_listed(kept)} weights stay upstream's, and what keeps those exact "
                "(--no-repack) switches our kernels off for all",
            )
        return Kernels(chosen, f"{chosen} kernels")

    def exactness(self, model_types: tuple[str, ...], plan: LaunchPlan) -> tuple[str, ...]:
        """The choices that make speculative greedy output equal to plain, each with its cost.

        Empty with ``relax`` (other tokens are accepted on purpose) and with layers on a GPU,
        whose kernels differ between one token and several.
        """
        if plan.relax > 0 or uses_gpu(plan):
            return ()
        if self._packs(model_types, plan):
            choices = _with_kernels(model_types, plan)
        else:
            choices = _with_upstreams(model_types, plan)
        if has_gpu(plan):
            choices.append("the GPU is left out: prompts are read at the speed of the CPU")
        return tuple(choices)

    def _packs(self, model_types: tuple[str, ...], plan: LaunchPlan) -> bool:
        return self.kernels(model_types, plan.kernels, host_isa()).isa is not None


def _with_kernels(model_types: tuple[str, ...], plan: LaunchPlan) -> list[str]:
    """Exactness where our kernels multiply by what they have a form for."""
    rest = unpacked(model_types)
    # Norms and biases are F32 in every file and no factors of a product.
    if not any(t.type == "F32" and is_factor(t) for t in plan.model.tensors):
        rest = tuple(name for name in rest if name != "F32")
    others = "attention" + (f" and {_listed(rest)} weights" if rest else "")
    # Floats have kernels of ours up to there, and upstream's beyond.
    slow = "long contexts" + (" and wide passes are" if without_kernels(rest) else " are")
    choices = []
    same = "each token the result it has alone"
    if unpacked(model_types) != model_types:
        choices.append(f"packed weights give {same}, however many tokens are in a pass")
        so = "do so" if rest else "does so"
    else:
        so = f"give {same}" if rest else f"gives {same}"
    choices.append(
        f"{others} {so} in passes of up to {exact_columns(plan)} tokens: {slow} slower than "
        "upstream's"
    )
    if plan.parallel > 1:
        choices.append(
            "while one slot reads a prompt, tokens of the others take part in its wide passes, "
            f"where {others} may round otherwise: their answers are exact only when no prompt "
            "comes in between"
        )
    return choices


def _with_upstreams(model_types: tuple[str, ...], plan: LaunchPlan) -> list[str]:
    """Exactness with upstream's kernels alone."""
    choices = [
        f"passes of up to {exact_columns(plan)} tokens use the code that gives each token the "
        "result it has alone: wide passes and attention to long contexts are slower than upstream's"
    ]
    kept = _varying(model_types)
    if kept:
        choices.append(
            f"{_listed(kept)} weights are not repacked, as the repacked kernels add up "
            "differently for several tokens: passes of four and more tokens are slower"
        )
    if plan.parallel > 1:
        choices.append(
            "while one slot reads a prompt, tokens of the others take part in its wide passes: "
            "their answers are exact only when no prompt comes in between"
        )
    return choices


def _varying(types: tuple[str, ...]) -> tuple[str, ...]:
    return varying_types(types, platform.machine(), host_isa())


def exact_columns(plan: LaunchPlan) -> int:
    """Tokens in the widest pass whose results must not depend on its width: one verify pass of
    every slot."""
    drafted = plan.draft.n_max if plan.draft is not None else 0
    return plan.parallel * max(_LEAST_COLUMNS, 1 + drafted)


def _pass_tokens(plan: LaunchPlan) -> int:
    """Tokens that several slots verify in a pass together; 0: no limit. Beyond about 8 each costs a
    processor what it brings (docs/scale.md has what happens without a limit)."""
    if plan.draft is None or plan.parallel == 1 or plan.kind == "all-gpu":
        return 0
    return max(_LEAST_COLUMNS, 1 + plan.draft.n_max)


def _environment(plan: LaunchPlan) -> dict[str, str]:
    env = {"SRHPM_EXACT": str(exact_columns(plan))}
    n_min = 0
    if plan.draft is not None and plan.draft.type != "ngram":
        n_min = min(plan.draft.n_min, plan.draft.n_max)
    options = {
        "SRHPM_DRAFT_N_MIN": n_min,
        "SRHPM_PASS_TOKENS": _pass_tokens(plan),
        "SRHPM_RELAX": plan.relax,
    }
    for name, value in options.items():
        # 0 is the server's default; it is said only against an inherited value.
        if value or name in os.environ:
            env[name] = f"{value:g}"
    if plan.kernels != "speed" or VARIABLE in os.environ:
        env[VARIABLE] = plan.kernels
    if plan.layer_list or _GPU_LAYERS in os.environ:
        env[_GPU_LAYERS] = plan.layer_list or ""
    if plan.rollback == "copy":
        env[_ROLLBACK] = plan.rollback
    if not any(name in os.environ for name in _WAITING):
        env[_WAITING[0]] = _SPINS
    return env


def _listed(words: tuple[str, ...]) -> str:
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else words[0]


@hookimpl
def srhpm_backends() -> Iterable[Backend]:
    """The patched server."""
    return (SrhpmBackend(),)

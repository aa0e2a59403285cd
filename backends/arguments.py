"""A launch plan in the words of llama-server, as upstream and the patched server share them."""

from __future__ import annotations

from pathlib import Path

from srhpm_plugin.plan import Draft, LaunchPlan

CPU = "CPU"

# Tokens that must match for an n-gram to be found. Three is what prompt look-up settled on: two
# match by chance, four miss most repetitions.
_NGRAM_LOOKUP = 3


def server_argv(plan: LaunchPlan, program: Path) -> list[str]:
    """The command line without host and port.

    Speculation and placement are always stated: what upstream would choose by itself is not what
    the plan has counted memory for.
    """
    argv = [str(program), "--model", str(plan.model.path)]
    # llama-server divides its context among the slots.
    argv += ["--ctx-size", str(plan.ctx * plan.parallel), "--parallel", str(plan.parallel)]
    argv += ["--threads", str(plan.threads), "--threads-batch", str(plan.threads)]
    argv += _placement(plan)
    argv += ["--cache-type-k", plan.cache_type_k, "--cache-type-v", plan.cache_type_v]
    argv += ["--flash-attn", "on"]
    argv += ["--cache-ram", str(plan.cache_ram_mib)]
    argv += ["--ctx-checkpoints", str(plan.ctx_checkpoints)]
    if plan.mmproj is not None:
        argv += ["--mmproj", str(plan.mmproj)]
        if not plan.gpu_layers:
            argv += ["--no-mmproj-offload"]
    argv += _speculation(plan.draft, plan.threads)
    return [*argv, "--no-webui", "--offline"]


def has_gpu(plan: LaunchPlan) -> bool:
    """Whether the plan knows of a GPU, used or not."""
    return any(use.device != CPU for use in plan.memory)


def uses_gpu(plan: LaunchPlan) -> bool:
    """Whether the target runs on a GPU, in part or whole."""
    return plan.gpu_layers != 0


def _placement(plan: LaunchPlan) -> list[str]:
    argv = ["--gpu-layers", str(plan.gpu_layers), "--fit", "off"]
    if plan.cpu_moe:
        argv += ["--n-cpu-moe", str(plan.cpu_moe)]
    if plan.rpc:
        argv += ["--rpc", ",".join(plan.rpc)]
    if plan.rpc or max(plan.layer_set, default=0) > 0:
        # A set counts GPUs in the order of the machine's.
        argv += ["--device", ",".join(use.device for use in plan.memory if use.device != CPU)]
    return argv


def _speculation(draft: Draft | None, threads: int) -> list[str]:
    if draft is None:
        return ["--spec-type", "none"]
    if draft.type == "ngram":
        return _ngram(draft)
    argv = ["--spec-type", draft.type]
    argv += ["--spec-draft-n-max", str(draft.n_max), "--spec-draft-p-min", f"{draft.p_min:g}"]
    if draft.path is not None:
        # The drafter's context is as long as the target's by itself.
        argv += ["--spec-draft-model", str(draft.path)]
        argv += ["--spec-draft-threads", str(threads), "--spec-draft-threads-batch", str(threads)]
        on_cpu = draft.device == CPU
        argv += ["--spec-draft-device", "none" if on_cpu else draft.device]
        argv += ["--spec-draft-ngl", "0" if on_cpu else "all"]
    return argv


def _ngram(draft: Draft) -> list[str]:
    """``ngram-simple``: the only n-gram drafter upstream that is a function of the slot's tokens.

    ``ngram-map-*`` keep what was accepted and ``ngram-mod`` and ``ngram-cache`` keep tokens from
    one request to the next, so that a repeated prompt would be drafted from its own answer.

    Its size of the look-up is also the least length of a draft, so ``n_min`` sets both; n-grams
    have no probabilities, so ``p_min`` means nothing.
    """
    n_max = max(1, draft.n_max)
    lookup = min(max(draft.n_min, _NGRAM_LOOKUP), n_max)
    sizes = ["--spec-ngram-simple-size-n", str(lookup), "--spec-ngram-simple-size-m", str(n_max)]
    return ["--spec-type", "ngram-simple", *sizes]

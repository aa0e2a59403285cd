"""The plan kind: the built-in step."""

from __future__ import annotations

from dataclasses import replace

from ..machine.types import Machine
from ..model import ModelInfo
from ..plan import DraftChoice, HostRequest, PlanKind
from .kernels import are_packed
from .memory import CPU
from .outline import PlanOutline
from .place import all_layers
from .room import ask_memory, put, shortage
from .units import size
from .weights import trunk_bytes, weight_map

# The context assumed where the user states none: a usual chat with some documents. Hosts take
# 4096 (Ollama, LM Studio), which a code assistant's first request overruns; the longest the model
# can do would take gigabytes of KV that most never fill.
DEFAULT_CTX = 8192
SHORT_CTX = 4096

# Architectures that produce no text token by token: embeddings, encoder-decoders, diffusion,
# audio codecs.
_NO_DECODER = frozenset(
    {
        "bert",
        "dream",
        "eurobert",
        "gemma-embedding",
        "jina-bert-v2",
        "jina-bert-v3",
        "llada",
        "llada-moe",
        "modern-bert",
        "neo-bert",
        "nomic-bert",
        "nomic-bert-moe",
        "rnd1",
        "t5",
        "t5encoder",
        "wavtokenizer-dec",
    }
)

# Drafters that are useless alone.
DRAFT_ONLY = frozenset(("dflash", "eagle3", "gemma4-assistant"))


def wanted_ctx(request: HostRequest, model: ModelInfo) -> int:
    """Tokens per slot before anything is known of the room."""
    wanted = request.ctx or DEFAULT_CTX
    return min(wanted, model.n_ctx_train) if model.n_ctx_train else wanted


def outline(
    request: HostRequest, model: ModelInfo, machine: Machine, kind: PlanKind, choice: DraftChoice
) -> PlanOutline:
    """A plan before placement, at the context wanted."""
    return PlanOutline(
        request=request,
        model=model,
        machine=machine,
        kind=kind,
        choice=choice,
        ctx=wanted_ctx(request, model),
        threads=0,
        gpu_layers=0,
        placement=(),
        cache_type_k=request.cache_type_k or "f16",
        cache_type_v=request.cache_type_v or "f16",
        cache_ram_mib=0,
        ctx_checkpoints=0,
        packed=are_packed(request, model, machine),
    )


def unsupported(model: ModelInfo) -> str | None:
    """Why speculation cannot serve this model at all, or ``None``."""
    if model.arch in DRAFT_ONLY:
        return f"{model.arch} is a drafter for other models and answers nothing by itself"
    if model.arch in _NO_DECODER:
        return f"{model.arch} models do not generate text token by token"
    if model.metadata.get(f"{model.arch}.attention.causal") is False:
        return "the model's attention is not causal: it does not generate token by token"
    if model.metadata.get(f"{model.arch}.pooling_type"):  # 0 is none
        return "it is an embedding model: it generates no text"
    if model.tokenizer is None:
        return "the file has no vocabulary"
    return None


def choose_kind(request: HostRequest, model: ModelInfo, machine: Machine) -> tuple[PlanKind, str]:
    """The kind and why."""
    why = unsupported(model)
    if why:
        return "stock", why
    weights = size(trunk_bytes(model))
    if not machine.gpus:
        return "srhpm", _on_cpu(model, "no GPU was found", weights)
    if request.gpu_layers == 0:
        return "srhpm", _on_cpu(model, "the host asked for no GPU layers", weights)
    whole = all_layers(model)
    free = ", ".join(f"{g.name} has {size(g.free)} free" for g in machine.gpus)
    trial = outline(request, model, machine, "all-gpu", DraftChoice(None))
    if request.gpu_layers is not None:
        if 0 <= request.gpu_layers < whole:
            return "srhpm", f"the host asked for {request.gpu_layers} of {whole} GPU layers"
        return "all-gpu", "the host asked for all layers on the GPU"
    # A context nobody asked for may shrink to keep a model on the GPU.
    shortest = trial.ctx if request.ctx else min(trial.ctx, SHORT_CTX)
    if _fits(trial, whole, 0, shortest):
        return "all-gpu", f"all {weights} of weights and the context fit: {free}"
    experts = sum(weight_map(model).experts)
    if experts and _fits(trial, whole, model.n_layer, trial.ctx):
        return "moe", f"{weights} of weights do not fit ({free}), all but its experts does"
    if experts:
        return "srhpm", f"not even the {weights} without the experts fit ({free})"
    return "srhpm", f"{weights} of weights do not fit ({free}): the rest is read from RAM"


def _on_cpu(model: ModelInfo, why: str, weights: str) -> str:
    if model.n_expert:
        return (
            f"{why}: {weights} of weights lie in RAM; {model.n_expert_used} of {model.n_expert} "
            "experts are read per token, and several tokens at once read more of them than one"
        )
    return f"{why}: {weights} of weights lie in RAM and are read once per pass, not per token"


def _fits(plan: PlanOutline, layers: int, cpu_moe: int, ctx: int) -> bool:
    placed = put(replace(plan, ctx=ctx), layers, cpu_moe, CPU)
    return all(use.device == CPU for use in shortage(ask_memory(placed), plan.machine))

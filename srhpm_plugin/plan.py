"""What goes into a plan and what comes out: plain data, no behaviour.

``HostRequest + ModelInfo + Machine -> LaunchPlan`` (docs/architecture.md). The JSON of
``srhpm-plugin plan --json`` is :meth:`LaunchPlan.to_json`; its field names are a contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from .model import ModelInfo

PlanKind = Literal["all-gpu", "moe", "srhpm", "stock"]
DraftType = Literal["draft-simple", "draft-mtp", "ngram"]
KernelSetting = Literal["speed", "off"]
RollbackWay = Literal["planes", "copy"]


@dataclass(frozen=True)
class HostRequest:
    """What the user or host asked for. ``None`` means "not said, choose".

    Attributes:
        model: path of the target.
        draft: ``auto``, ``none``, ``ngram`` or the path of a drafter.
        ctx: context per slot, tokens.
        parallel: slots.
        threads: compute threads.
        gpu_layers: the host's explicit ``-ngl``.
        rpc: workers on other machines, ``HOST:PORT``.
        cache_type_k, cache_type_v: KV types, e.g. ``f16``, ``q8_0``.
        mmproj: projector file.
        relax: nats within which a drafted token is accepted; 0 is exact.
        backend: name of the backend plugin that will run the plan.
        kernels: ``speed`` for ours, ``off`` for upstream's; not said, ``SRHPM_KERNELS`` decides.
    """

    model: Path
    draft: str = "auto"
    ctx: int | None = None
    parallel: int = 1
    threads: int | None = None
    gpu_layers: int | None = None
    cache_type_k: str | None = None
    cache_type_v: str | None = None
    mmproj: Path | None = None
    relax: float = 0.0
    backend: str = "srhpm"
    kernels: KernelSetting | None = None
    rpc: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """The drafter of a plan.

    Attributes:
        type: how tokens are proposed.
        path: the drafter's file for ``draft-simple``; ``None`` otherwise.
        n_min: tokens proposed in every pass.
        n_max: upper limit, reached while the drafter is confident.
        p_min: probability at which drafting goes on beyond ``n_min``.
        device: where the drafter's layers lie: ``CPU`` or one device of the server, e.g. ``CUDA0``.
    """

    type: DraftType
    path: Path | None
    n_min: int
    n_max: int
    p_min: float
    device: str = "CPU"


@dataclass(frozen=True)
class DraftChoice:
    """Outcome of the drafter step: a drafter or the reason there is none, and what was refused.

    Attributes:
        draft: ``None`` when speculation is off.
        off_reason: why, when ``draft`` is ``None``.
        model: the drafter's header for ``draft-simple``.
        reasons: one line per candidate looked at, accepted or refused.
    """

    draft: Draft | None
    off_reason: str | None = None
    model: ModelInfo | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placement:
    """Which tensors lie on a device.

    Attributes:
        device: ``CPU`` or the server's device name, e.g. ``CUDA0``.
        layers: ranges such as ``0-29``, and ``embd``, ``output``.
        nbytes: weight bytes there.
    """

    device: str
    layers: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class MemoryUse:
    """Bytes per part on one device; ``free`` is what was free before the launch."""

    device: str
    weights: int = 0
    kv: int = 0
    compute: int = 0
    draft: int = 0
    rollback: int = 0
    projector: int = 0
    cache: int = 0
    free: int = 0

    @property
    def total(self) -> int:
        """Sum of the parts."""
        return (
            self.weights
            + self.kv
            + self.compute
            + self.draft
            + self.rollback
            + self.projector
            + self.cache
        )


@dataclass(frozen=True)
class Predicted:
    """Expected speed; ``None`` where nothing is known yet.

    Attributes:
        tok_s: decode speed under this plan, tokens per second.
        stock_tok_s: the same model on an unpatched server without drafter.
        pass_ms: one verify pass, milliseconds.
        acceptance: expected accepted / drafted.
        basis: where the numbers come from.
        source: the same in words; ``None`` where the basis says all.
    """

    tok_s: float | None = None
    stock_tok_s: float | None = None
    pass_ms: float | None = None
    acceptance: float | None = None
    basis: Literal["measured", "calibrated", "estimated"] = "estimated"
    source: str | None = None


@dataclass(frozen=True)
class LaunchPlan:
    """All that a backend needs to start a server, and all that a user wants explained.

    ``argv`` and ``env`` come from the backend and are complete but for host and port, which the
    launcher adds. ``exact`` names what makes speculative output equal to plain, and its cost.
    ``warnings`` says where the plan is not what was asked for.
    ``gpu_layers`` counts as ``-ngl`` does (the last layers and the head; 0 is CPU only) and
    ``cpu_moe`` as ``--n-cpu-moe`` does (the first layers whose experts stay on the CPU). Where not
    the last layers lie on GPUs, ``layer_set`` says which: the index of the GPU of each layer and of
    the head, -1 for the CPU; ``gpu_layers`` is then how many do.
    ``rpc`` are the workers that hold layers, in the server's words (planner/workers.py).
    ``rollback`` says how a recurrent model goes back over rejected tokens (planner/rollback.py).
    ``kernels`` is the setting; ``reasons`` says what it comes to with this model and processor.
    """

    kind: PlanKind
    backend: str
    model: ModelInfo
    draft: Draft | None
    draft_off_reason: str | None
    ctx: int
    parallel: int
    threads: int
    gpu_layers: int
    placement: tuple[Placement, ...]
    memory: tuple[MemoryUse, ...]
    predicted: Predicted
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    cache_ram_mib: int = 0
    ctx_checkpoints: int = 0
    relax: float = 0.0
    mmproj: Path | None = None
    cpu_moe: int = 0
    layer_set: tuple[int, ...] = ()
    kernels: KernelSetting = "speed"
    rollback: RollbackWay = "planes"
    rpc: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def layer_list(self) -> str | None:
        """``layer_set`` as the server reads it (SRHPM_GPU_LAYERS): ``3,7-9,out``, with ``@N`` on a
        GPU other than the first. ``None`` without one."""
        return layer_list(self.layer_set) if self.layer_set else None

    def to_json(self) -> dict[str, Any]:
        """The ``plan --json`` object (design contract; fields are only ever added)."""
        m = self.model
        return {
            "kind": self.kind,
            "backend": self.backend,
            "model": {
                "path": str(m.path),
                "arch": m.arch,
                "name": m.name,
                "params": m.n_params,
                "bytes": m.nbytes,
                "quant_mix": dict(m.quant_mix),
            },
            "draft": None
            if self.draft is None
            else {
                "type": self.draft.type,
                "path": str(self.draft.path) if self.draft.path else None,
                "n_min": self.draft.n_min,
                "n_max": self.draft.n_max,
                "p_min": self.draft.p_min,
                "device": self.draft.device,
            },
            "draft_off_reason": self.draft_off_reason,
            "ctx": self.ctx,
            "parallel": self.parallel,
            "threads": self.threads,
            "gpu_layers": self.gpu_layers,
            "layer_list": self.layer_list,
            "cpu_moe": self.cpu_moe,
            "kernels": self.kernels,
            "rollback": self.rollback,
            "rpc": list(self.rpc),
            "cache_type_k": self.cache_type_k,
            "cache_type_v": self.cache_type_v,
            "cache_ram_mib": self.cache_ram_mib,
            "ctx_checkpoints": self.ctx_checkpoints,
            "placement": [
                {"device": p.device, "layers": list(p.layers), "bytes": p.nbytes}
                for p in self.placement
            ],
            "memory": [{**asdict(u), "total": u.total} for u in self.memory],
            "predicted": asdict(self.predicted),
            "exact": list(self.exact),
            "relax": self.relax,
            "argv": list(self.argv),
            "env": dict(self.env),
            "reasons": list(self.reasons),
            "warnings": list(self.warnings),
        }


def layer_list(layer_set: tuple[int, ...]) -> str:
    """See :attr:`LaunchPlan.layer_list`."""
    runs: list[tuple[int, int, int]] = []  # first, last, device
    for i, device in enumerate(layer_set[:-1]):
        if runs and runs[-1][1:] == (i - 1, device):
            runs[-1] = (runs[-1][0], i, device)
        elif device >= 0:
            runs.append((i, i, device))
    words = [(f"{a}" if a == b else f"{a}-{b}", device) for a, b, device in runs]
    words += [("out", layer_set[-1])] if layer_set[-1] >= 0 else []
    return ",".join(f"{word}@{device}" if device else word for word, device in words)

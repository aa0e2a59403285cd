"""Machines and models that nobody has to own, and model files of zeros for the real server."""

from __future__ import annotations

import hashlib
import platform
import re
import socket
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gguf
import numpy as np
import pytest

from srhpm_plugin.machine.types import Cpu, Gpu, Machine, Memory
from srhpm_plugin.model import ModelInfo, Recurrent, Tensor, Tokenizer

GIB = 1024**3
BITS = {"Q4_K": 4.5, "Q8_0": 8.5, "F16": 16.0, "F32": 32.0}


def machine(
    ram: float,
    *,
    physical: int = 4,
    performance: int | None = None,
    usable: int | None = None,
    usable_performance: int | None = None,
    logical: int | None = None,
    quota: float | None = None,
    gpus: Sequence[tuple[float, float]] = (),
    isa: tuple[str, ...] = ("avx2",),
) -> Machine:
    """``ram`` and the (total, free) of each GPU in GiB. The processor has no kernels of ours unless
    ``isa`` says otherwise."""
    cpu = Cpu(
        name="test",
        logical=logical or physical,
        physical=physical,
        performance=performance or physical,
        usable=usable or physical,
        usable_performance=usable_performance or min(usable or physical, performance or physical),
        cgroup_limit=quota,
        smt=bool(logical and logical > physical),
        isa=isa,
    )
    free = int(ram * GIB)
    cards = tuple(
        Gpu(f"CUDA{i}", "test card", int(total * GIB), int(left * GIB), "nvml")
        for i, (total, left) in enumerate(gpus)
    )
    return Machine(cpu, Memory(2 * free, free, 0, None, "madvise", 1), cards)


@pytest.fixture(autouse=True)
def _no_inherited_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SRHPM_KERNELS", "SRHPM_ISA"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def packing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """``packing(ram, ...)`` is a machine whose processor runs our kernels."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    return lambda ram, **more: machine(ram, isa=("avx2", "fma", "f16c"), **more)


@pytest.fixture(scope="session")
def machines() -> SimpleNamespace:
    """Machines by name, and ``make`` for others."""
    return SimpleNamespace(
        make=machine,
        laptop=machine(13, physical=4, logical=8),
        desktop=machine(28, physical=8, logical=16, gpus=[(6, 5.4)]),
        hybrid=machine(28, physical=20, performance=8, logical=28),
        tiny=machine(1.5, physical=2),
        big_gpu=machine(60, physical=16, gpus=[(24, 23)]),
        two_gpus=machine(60, physical=16, gpus=[(8, 7.5), (12, 11)]),
    )


def tokens_of(
    words: Sequence[str], *, model: str = "gpt2", pre: str = "qwen2", **special: int
) -> Tokenizer:
    """A tokenizer of these tokens."""
    spans = tuple(word.encode() for word in words)
    return Tokenizer(
        model=model,
        pre=pre,
        n_tokens=len(spans),
        tokens_sha256=hashlib.sha256(b"\0".join(spans)).hexdigest(),
        merges_sha256="merges",
        special={"bos": 1, "eos": 2, "add_bos": 0, "add_eos": 0} | special,
        token_spans=spans,
    )


VOCABULARY = tokens_of([f"token {i}" for i in range(1000)])


@dataclass(frozen=True)
class Shape:
    """Sizes of a model; the defaults are a dense one of 27 B."""

    arch: str = "qwen3"
    n_layer: int = 64
    n_embd: int = 5120
    n_ff: int = 22016
    heads: int = 40
    heads_kv: int = 8
    head: int = 128
    n_vocab: int = 151_936
    quant: str = "Q4_K"
    tied: bool = False
    experts: int = 0
    used: int = 0
    ff_exp: int = 0
    mtp: int = 0
    window: int = 0
    window_every: int = 0
    ssm_inner: int = 0
    ssm_state: int = 128
    ssm_groups: int = 16
    ctx: int = 131_072
    tokenizer: Tokenizer | None = VOCABULARY
    metadata: dict[str, Any] = field(default_factory=dict)


def model(path: str | Path = "/models/target.gguf", **sizes: Any) -> ModelInfo:
    """A header made of :class:`Shape`'s fields."""
    s = Shape(**sizes)
    tensors: list[Tensor] = []

    def add(name: str, *shape: int, quant: str = s.quant) -> None:
        n = int(np.prod(shape))
        kind = quant if len(shape) > 1 else "F32"
        tensors.append(Tensor(name, shape, kind, int(n * BITS[kind] / 8)))

    add("token_embd.weight", s.n_embd, s.n_vocab)
    add("output_norm.weight", s.n_embd)
    if not s.tied:
        add("output.weight", s.n_embd, s.n_vocab)
    linear = tuple(i for i in range(s.n_layer) if s.ssm_inner and (i + 1) % 4)
    for i in range(s.n_layer + s.mtp):
        add(f"blk.{i}.attn_norm.weight", s.n_embd)
        if i in linear:
            channels = 2 * s.ssm_groups * s.ssm_state + s.ssm_inner
            add(f"blk.{i}.attn_qkv.weight", s.n_embd, channels)
            add(f"blk.{i}.ssm_conv1d.weight", 4, channels, quant="F32")
            add(f"blk.{i}.ssm_out.weight", s.ssm_inner, s.n_embd)
        else:
            add(f"blk.{i}.attn_q.weight", s.n_embd, s.heads * s.head)
            add(f"blk.{i}.attn_k.weight", s.n_embd, s.heads_kv * s.head)
            add(f"blk.{i}.attn_v.weight", s.n_embd, s.heads_kv * s.head)
            add(f"blk.{i}.attn_output.weight", s.heads * s.head, s.n_embd)
        if s.experts:
            add(f"blk.{i}.ffn_gate_inp.weight", s.n_embd, s.experts, quant="F32")
            add(f"blk.{i}.ffn_gate_exps.weight", s.n_embd, s.ff_exp, s.experts)
            add(f"blk.{i}.ffn_up_exps.weight", s.n_embd, s.ff_exp, s.experts)
            add(f"blk.{i}.ffn_down_exps.weight", s.ff_exp, s.n_embd, s.experts)
        else:
            add(f"blk.{i}.ffn_gate.weight", s.n_embd, s.n_ff)
            add(f"blk.{i}.ffn_up.weight", s.n_embd, s.n_ff)
            add(f"blk.{i}.ffn_down.weight", s.n_ff, s.n_embd)
        if i >= s.n_layer:
            add(f"blk.{i}.nextn.eh_proj.weight", 2 * s.n_embd, s.n_embd)
    mix: dict[str, int] = {}
    for t in tensors:
        mix[t.type] = mix.get(t.type, 0) + t.nbytes
    channels = 2 * s.ssm_groups * s.ssm_state + s.ssm_inner
    return ModelInfo(
        path=Path(path),
        parts=(Path(path),),
        arch=s.arch,
        name=Path(path).stem,
        n_params=sum(t.n_elements for t in tensors),
        nbytes=sum(t.nbytes for t in tensors),
        quant_mix=dict(sorted(mix.items(), key=lambda item: -item[1])),
        n_layer=s.n_layer,
        n_ctx_train=s.ctx,
        n_embd=s.n_embd,
        n_ff=s.n_ff,
        n_head=tuple(0 if i in linear else s.heads for i in range(s.n_layer)),
        n_head_kv=tuple(0 if i in linear else s.heads_kv for i in range(s.n_layer)),
        key_length=s.head,
        value_length=s.head,
        n_vocab=s.n_vocab,
        n_expert=s.experts,
        n_expert_used=s.used,
        n_mtp_layers=s.mtp,
        sliding_window=s.window,
        recurrent=Recurrent(linear, 3 * channels, s.ssm_inner * s.ssm_state) if linear else None,
        tokenizer=s.tokenizer,
        tensors=tuple(tensors),
        metadata=s.metadata,
        window_layers=tuple(
            i for i in range(s.n_layer) if s.window and i % s.window_every != s.window_every - 1
        ),
    )


SMALL = {"n_layer": 28, "n_embd": 1024, "n_ff": 3072, "heads": 16, "heads_kv": 8, "tied": True}


@pytest.fixture(scope="session")
def models() -> SimpleNamespace:
    """Models by name, ``make`` for others, ``tokens_of`` for their vocabularies."""
    return SimpleNamespace(
        make=model,
        tokens_of=tokens_of,
        small_sizes=SMALL,
        dense27=model("/models/dense-27b.gguf"),
        moe30=model(
            "/models/moe-30b-a3b.gguf",
            arch="qwen3moe",
            n_layer=48,
            n_embd=2048,
            n_ff=6144,
            heads=32,
            heads_kv=4,
            experts=128,
            used=8,
            ff_exp=768,
        ),
        hybrid27=model("/models/hybrid-27b.gguf", arch="qwen35", heads_kv=4, ssm_inner=6144, mtp=1),
        window9=model(
            "/models/window-9b.gguf",
            arch="gemma3",
            n_layer=42,
            n_embd=3584,
            n_ff=14336,
            heads=16,
            window=1024,
            window_every=6,
            # llama.cpp asks for it; files without are of another format
            metadata={"gemma3.attention.layer_norm_rms_epsilon": 1e-6},
        ),
        small=model("/models/small-0.6b.gguf", **SMALL),
    )


@pytest.fixture
def headers(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModelInfo], Path]:
    """``headers(model)`` makes the planner see ``model`` when it reads ``model.path``, a file
    that need not exist."""
    from srhpm_plugin.errors import UserError
    from srhpm_plugin.planner import drafter, headers, make, names
    from srhpm_plugin.planner.cost import costs

    seen: dict[Path, ModelInfo] = {}

    def read(path: Path) -> ModelInfo:
        if path in seen:
            return seen[path]
        if path.exists():
            return headers.read_header(path)
        raise UserError(f"cannot read {path}", "it is truncated", "download it again")

    for module in (costs, drafter, make, names):
        monkeypatch.setattr(module, "read_header", read)

    def show(info: ModelInfo) -> Path:
        seen[info.path] = info
        return info.path

    return show


@pytest.fixture(scope="session")
def zero_gguf(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``zero_gguf(name, arch, ...)`` writes a model whose weights are all zero: the server lays it
    out like any other of its shape."""
    folder = tmp_path_factory.mktemp("zeros")

    def write(name: str, **sizes: Any) -> Path:
        path = folder / f"{name}.gguf"
        _write_zeros(path, Shape(**({"quant": "F16", "n_layer": 2} | sizes)))
        return path

    return write


def _write_zeros(path: Path, s: Shape) -> None:
    w = gguf.GGUFWriter(path, s.arch)
    w.add_block_count(s.n_layer + s.mtp)
    w.add_context_length(s.ctx)
    w.add_embedding_length(s.n_embd)
    w.add_feed_forward_length(s.n_ff)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.heads_kv)
    w.add_key_length(s.head)
    w.add_value_length(s.head)
    w.add_rope_dimension_count(s.head)
    w.add_layer_norm_rms_eps(1e-5)
    if s.experts:
        w.add_expert_count(s.experts)
        w.add_expert_used_count(s.used)
        w.add_expert_feed_forward_length(s.ff_exp)
    if s.window:
        w.add_sliding_window(s.window)
    if s.mtp:
        w.add_nextn_predict_layers(s.mtp)
    value_heads = s.ssm_inner // s.ssm_state
    if s.ssm_inner:
        w.add_ssm_conv_kernel(4)
        w.add_ssm_inner_size(s.ssm_inner)
        w.add_ssm_state_size(s.ssm_state)
        w.add_ssm_time_step_rank(value_heads)
        w.add_ssm_group_count(s.ssm_groups)
        w.add_array(f"{s.arch}.rope.dimension_sections", [16, 16, 0, 0])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("default")
    w.add_token_list([f"token {i}" for i in range(s.n_vocab)])
    w.add_token_types([1] * s.n_vocab)
    w.add_token_merges(["t o"])
    w.add_bos_token_id(0)
    w.add_eos_token_id(1)
    done: set[str] = set()

    def add(name: str, *shape: int, kind: type = np.float16) -> None:
        if name not in done:
            done.add(name)
            w.add_tensor(name, np.zeros(shape[::-1], np.float32 if len(shape) == 1 else kind))

    for t in model(path, **vars(s)).tensors:
        factor = 2 if s.arch == "qwen35" and "attn_q." in t.name else 1
        wide = (t.shape[0], t.shape[1] * factor) if factor > 1 else t.shape
        add(t.name, *wide, kind=np.float32 if t.type == "F32" else np.float16)
    for i in range(s.n_layer + s.mtp):
        linear = bool(s.ssm_inner) and i < s.n_layer and (i + 1) % 4 != 0
        post = "post_attention_norm" if s.arch in ("qwen35", "gemma3") else "ffn_norm"
        add(f"blk.{i}.{post}.weight", s.n_embd)
        if s.arch == "gemma3":
            add(f"blk.{i}.ffn_norm.weight", s.n_embd)
            add(f"blk.{i}.post_ffw_norm.weight", s.n_embd)
        if linear:
            add(f"blk.{i}.attn_gate.weight", s.n_embd, s.ssm_inner)
            add(f"blk.{i}.ssm_dt.bias", value_heads)
            add(f"blk.{i}.ssm_a", value_heads)
            add(f"blk.{i}.ssm_beta.weight", s.n_embd, value_heads)
            add(f"blk.{i}.ssm_alpha.weight", s.n_embd, value_heads)
            add(f"blk.{i}.ssm_norm.weight", s.ssm_state)
        elif s.arch != "llama":
            add(f"blk.{i}.attn_q_norm.weight", s.head)
            add(f"blk.{i}.attn_k_norm.weight", s.head)
        if i >= s.n_layer:
            add(f"blk.{i}.nextn.enorm.weight", s.n_embd)
            add(f"blk.{i}.nextn.hnorm.weight", s.n_embd)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.fixture(scope="session")
def server_sizes(server_dir: Path) -> Callable[..., dict[str, list[float]]]:
    """``server_sizes(model, *options)`` starts the real server and returns, in bytes, what it says
    of its buffers: ``model``, ``packed`` (weights in our kernels' form), ``KV``, ``RS`` and
    ``compute``, the target's before the drafter's, and ``rss``, the process's memory once it
    listens."""
    import psutil

    program = next(p for p in server_dir.iterdir() if p.stem == "llama-server")

    def ask(path: Path, *options: str) -> dict[str, list[float]]:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        argv = [str(program), "-m", str(path), "--port", str(port), "-fit", "off", "-ngl", "0"]
        argv += ["-t", "1", "-tb", "1", "-lv", "4", *options]
        sizes: dict[str, list[float]] = {
            part: [] for part in ("model", "packed", "KV", "RS", "compute")
        }
        with subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        ) as process:
            try:
                assert process.stdout is not None
                log = []
                for line in process.stdout:
                    log.append(line)
                    found = re.search(
                        r"(\w+) +(model|KV|RS|compute) buffer size = +([\d.]+) MiB", line
                    )
                    if found:
                        part = "packed" if found[1] == "CPU_SRHPM" else found[2]
                        sizes[part].append(float(found[3]) * 1024**2)
                    if "listening" in line:
                        sizes["rss"] = [float(psutil.Process(process.pid).memory_info().rss)]
                        return sizes
                raise AssertionError("".join(log[-40:]))
            finally:
                process.kill()

    return ask

"""Tiny models with random weights, written by gguf-py: targets, and drafters of every kind.

What random weights say means nothing, but all code runs as with real ones: reading hidden states of
the target, drafting, verifying, dropping rejected tokens. So that drafters are right now and then,
a few tokens win nearly always and one of them most of the time: every embedding has a common part,
and the more of it is left in the last hidden state, the higher that token scores. Drafters use the
target's embeddings and output matrix.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

E, FF, H, KV, HD, V = 256, 512, 4, 2, 64, 512
"""Width, feed-forward width, heads, key-value heads, head size, vocabulary."""
LAYERS = 8
HEADS = 7  # of the model that has one MTP head per drafted token
STATE, KEY_HEADS, VALUE_HEADS = 64, 2, 4  # of gated delta nets
BLOCK = 8  # tokens a block drafter was "trained" for
EXPERTS = 12  # of the model that has any
RANK = 16  # of the heads a block drafter may have
LOUD = 12  # tokens that win nearly always
LOUDNESS, FAVOUR = 4.0, 0.12
READ = [2, 4, 6]  # layers whose input a drafter reads

Value = int | float | Sequence[int]
_M_ROPE: dict[str, Value] = {"rope.dimension_sections": [11, 11, 10, 0]}


class _Model:
    """A file in the making. Shapes are numpy's: outputs, inputs."""

    def __init__(self, arch: str, layers: int, seed: int, fields: Mapping[str, Value]) -> None:
        self.arch = arch
        self.tensors: dict[str, np.ndarray[Any, Any]] = {}
        self._random = np.random.default_rng(seed)
        self._fields: dict[str, Value] = {
            "context_length": 4096,
            "embedding_length": E,
            "block_count": layers,
            "feed_forward_length": FF,
            "attention.head_count": H,
            "attention.head_count_kv": KV,
            "attention.key_length": HD,
            "attention.value_length": HD,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": HD,
            "rope.freq_base": 10000.0,
            **fields,
        }

    def matrix(self, name: str, *shape: int, scale: float | None = None) -> None:
        """Half-precision weights; rows of length about 1 unless scaled."""
        values = self._random.standard_normal(shape) * (scale or shape[-1] ** -0.5)
        self.tensors[f"{name}.weight"] = values.astype(np.float16)

    def norm(self, name: str, n: int) -> None:
        """Factors around 1."""
        self.floats(f"{name}.weight", 1 + 0.1 * self._random.standard_normal(n))

    def normal(self, *shape: int) -> np.ndarray[Any, Any]:
        return self._random.standard_normal(shape)

    def floats(self, name: str, values: Any) -> None:
        self.tensors[name] = np.asarray(values, dtype=np.float32)

    def embedding(self) -> None:
        """Input and output matrices of a target."""
        common = self._random.standard_normal(E)
        self.matrix("token_embd", V, E, scale=1.0)
        self.tensors["token_embd.weight"] += common.astype(np.float16)
        self.norm("output_norm", E)
        self.matrix("output", V, E)
        output = self.tensors["output.weight"]
        output[7 :: V // LOUD] *= LOUDNESS
        output[7 + V // LOUD] += (FAVOUR * common).astype(np.float16)

    def pass_on(self, name: str, share: float) -> None:
        """Let each of the inputs of width E of a mixing matrix through, besides what it mixes."""
        mixing = self.tensors[f"{name}.weight"]
        for start in range(0, mixing.shape[1], E):
            mixing[:, start : start + E] += np.eye(E, dtype=np.float16) * np.float16(share)

    def feed_forward(self, at: str, norm: str = "ffn_norm") -> None:
        self.norm(f"{at}.{norm}", E)
        self.matrix(f"{at}.ffn_gate", FF, E)
        self.matrix(f"{at}.ffn_up", FF, E)
        self.matrix(f"{at}.ffn_down", E, FF)

    def attention(
        self, at: str, *, gated: bool = False, normed: bool = True, n_in: int = E
    ) -> None:
        self.norm(f"{at}.attn_norm", E)
        self.matrix(f"{at}.attn_q", H * HD * (2 if gated else 1), n_in)
        self.matrix(f"{at}.attn_k", KV * HD, n_in)
        self.matrix(f"{at}.attn_v", KV * HD, n_in)
        self.matrix(f"{at}.attn_output", E, H * HD)
        if normed:
            self.norm(f"{at}.attn_q_norm", HD)
            self.norm(f"{at}.attn_k_norm", HD)

    def experts(self, at: str, *, shared: bool = False) -> None:
        """Routed experts behind a router of floats, as converters write it, and a shared one."""
        self.floats(f"{at}.ffn_gate_inp.weight", self.normal(EXPERTS, E) * E**-0.5)
        for part in ("gate", "up", "down"):
            self.matrix(f"{at}.ffn_{part}_exps", EXPERTS, E, E)
            if shared:
                self.matrix(f"{at}.ffn_{part}_shexp", E, E)
        if shared:
            self.floats(f"{at}.ffn_gate_inp_shexp.weight", self.normal(E) * E**-0.5)

    def delta_net(self, at: str, *, joined: bool = False) -> None:
        """``joined``: beta and alpha in one matrix."""
        values = VALUE_HEADS * STATE
        mixed = 2 * KEY_HEADS * STATE + values
        self.norm(f"{at}.attn_norm", E)
        self.matrix(f"{at}.attn_qkv", mixed, E)
        self.matrix(f"{at}.attn_gate", values, E)
        if joined:
            self.matrix(f"{at}.ssm_ba", 2 * VALUE_HEADS, E)
        else:
            self.matrix(f"{at}.ssm_beta", VALUE_HEADS, E)
            self.matrix(f"{at}.ssm_alpha", VALUE_HEADS, E)
        self.matrix(f"{at}.ssm_out", E, values)
        self.norm(f"{at}.ssm_norm", STATE)
        self.floats(f"{at}.ssm_conv1d.weight", 0.5 * self.normal(mixed, 4))
        self.floats(f"{at}.ssm_dt.bias", self.normal(VALUE_HEADS))
        # slow decay: what a rejected token left in the state would stay visible for long
        self.floats(f"{at}.ssm_a", -0.02 - 0.3 * np.abs(self.normal(VALUE_HEADS)))

    def mtp_head(self, at: str) -> None:
        """What makes a layer one that drafts from the token and the last hidden state."""
        self.matrix(f"{at}.nextn.eh_proj", E, 2 * E)
        self.pass_on(f"{at}.nextn.eh_proj", 1.0)
        self.norm(f"{at}.nextn.enorm", E)
        self.norm(f"{at}.nextn.hnorm", E)

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, self.arch)
        for name, value in self._fields.items():
            key = f"{self.arch}.{name}"
            if isinstance(value, int):
                writer.add_uint32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            else:
                writer.add_array(key, value)
        writer.add_tokenizer_model("test")
        writer.add_token_list([f"tok{i}" for i in range(V)])
        writer.add_token_scores([0.0] * V)
        writer.add_mask_token_id(V - 1)
        for name, values in self.tensors.items():
            writer.add_tensor(name, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def _qwen3(seed: int = 1, layers: int = LAYERS) -> _Model:
    """A transformer."""
    model = _Model("qwen3", layers, seed, {})
    model.embedding()
    for i in range(layers):
        model.attention(f"blk.{i}")
        model.feed_forward(f"blk.{i}")
    return model


def _qwen3moe() -> _Model:
    """A transformer with experts. Routers are floats, as converters write them, save one."""
    fields: dict[str, Value] = {
        "expert_count": EXPERTS,
        "expert_used_count": 3,
        "expert_feed_forward_length": E,
    }
    model = _Model("qwen3moe", 3, 5, fields)
    model.embedding()
    for i in range(3):
        at = f"blk.{i}"
        model.attention(at)
        model.norm(f"{at}.ffn_norm", E)
        model.matrix(f"{at}.ffn_gate_inp", EXPERTS, E)
        if i > 0:
            router = model.tensors[f"{at}.ffn_gate_inp.weight"]
            model.floats(f"{at}.ffn_gate_inp.weight", router)
        for part in ("gate", "up", "down"):
            model.matrix(f"{at}.ffn_{part}_exps", EXPERTS, E, E)
    return model


_DELTA_NETS: dict[str, Value] = {
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": VALUE_HEADS * STATE,
    "ssm.state_size": STATE,
    "ssm.time_step_rank": VALUE_HEADS,
    "ssm.group_count": KEY_HEADS,
}


def _sparse_hybrid(arch: str, fields: Mapping[str, Value] | None = None) -> _Model:
    """A hybrid, three gated delta nets to one attention, with experts and a shared one."""
    experts: dict[str, Value] = {
        "expert_count": EXPERTS,
        "expert_used_count": 3,
        "expert_feed_forward_length": E,
        "expert_shared_feed_forward_length": E,
    }
    # the seed of the hybrid without experts: its draft model knows these embeddings
    model = _Model(arch, LAYERS, 2, {**_DELTA_NETS, **experts, **(fields or {})})
    model.embedding()
    for i in range(LAYERS):
        at = f"blk.{i}"
        if i % 4 == 3:
            model.attention(at, gated=True)
        else:
            model.delta_net(at, joined=arch == "qwen3next")
        model.norm(f"{at}.post_attention_norm", E)
        model.experts(at, shared=True)
    return model


def _qwen35() -> _Model:
    """A hybrid, three gated delta nets to one attention, with an MTP head inside."""
    fields = {"nextn_predict_layers": 1, **_DELTA_NETS, **_M_ROPE}
    model = _Model("qwen35", LAYERS + 1, 2, fields)
    model.embedding()
    for i in range(LAYERS + 1):
        at = f"blk.{i}"
        if i % 4 == 3 or i == LAYERS:
            model.attention(at, gated=True)
        else:
            model.delta_net(at)
        model.feed_forward(at, norm="post_attention_norm")
    model.mtp_head(f"blk.{LAYERS}")
    return model


def _step35() -> _Model:
    """A transformer with windows in half of its layers and an MTP head for each drafted token."""
    n = LAYERS + HEADS
    fields: dict[str, Value] = {
        "nextn_predict_layers": HEADS,
        "expert_feed_forward_length": FF,
        "attention.sliding_window": 32,
        "attention.sliding_window_pattern": [i % 2 == 1 for i in range(n)],
    }
    model = _Model("step35", n, 8, fields)
    model.embedding()
    for i in range(n):
        model.attention(f"blk.{i}")
        model.feed_forward(f"blk.{i}")
        if i >= LAYERS:
            model.mtp_head(f"blk.{i}")
    return model


def _dflash(target: str, fields: Mapping[str, Value] | None = None) -> _Model:
    """A block drafter that reads the target's hidden states and has no vocabulary of its own."""
    rope: dict[str, Value] = {"rope.dimension_sections": [HD // 2, 0, 0, 0]}
    rope = rope if target == "qwen35" else {}
    all_fields = {"block_size": BLOCK, "target_layers": READ, **rope, **(fields or {})}
    model = _Model("dflash", 2, 3, all_fields)
    model.matrix("fc", E, len(READ) * E)
    model.norm("enc.output_norm", E)
    model.norm("output_norm", E)
    for i in range(2):
        model.attention(f"blk.{i}")
        model.feed_forward(f"blk.{i}")
    return model


def _dflash2(target: str) -> _Model:
    """DFlash with convolutions over the block and a selector among the best tokens."""
    taps, group, top_k = 2, 16, 4
    fields = {
        "conv_kernel_size": taps,
        "conv_group_size": group,
        "selector_rank": RANK,
        "selector_top_k": top_k,
    }
    model = _dflash(target, fields)
    model.matrix("selector_predecessor", V, RANK, scale=0.3)
    model.matrix("selector_successor", V, RANK, scale=0.3)
    model.matrix("selector_hidden", RANK, E)
    for i in range(2):
        for part in ("attn", "ffn"):
            model.matrix(f"blk.{i}.{part}_conv_proj", 2 * taps * E // group, E)
            model.floats(f"blk.{i}.{part}_conv_base", 0.5 + 0.1 * model.normal(2, taps, E))
    return model


def _dspark(target: str) -> _Model:
    """DFlash with a bias by the token before and a confidence head."""
    model = _dflash(target)
    model.matrix("markov_w1", V, RANK, scale=1.0)
    model.matrix("markov_w2", V, RANK)
    # from unsure to sure: the hidden states at masks alone differ little
    model.matrix("conf_proj", 1, E + RANK, scale=0.15)
    model.tensors["conf_proj.weight"][:, E:] *= 3
    return model


def _eagle3(target: str) -> _Model:
    """One layer over the token and a mix of the target's hidden states."""
    model = _Model("eagle3", 1, 4, {"target_layers": READ, "target_hidden_size": E})
    model.matrix("fc", E, len(READ) * E)
    model.pass_on("fc", 0.5)
    model.norm("output_norm", E)
    model.attention("blk.0", normed=False, n_in=2 * E)
    model.norm("blk.0.attn_norm_2", E)
    model.feed_forward("blk.0")
    return model


def _simple(target: str) -> _Model:
    """A transformer with the target's embeddings and output, drawn first from the same seed."""
    return _qwen3(seed=1 if target == "qwen3" else 2, layers=4)


_TARGETS: dict[str, Callable[[], _Model]] = {
    "qwen3": _qwen3,
    "qwen3moe": _qwen3moe,
    "qwen35": _qwen35,
    "qwen35moe": lambda: _sparse_hybrid("qwen35moe", _M_ROPE),
    "qwen3next": lambda: _sparse_hybrid("qwen3next"),
    "step35": _step35,
}
_DRAFTERS: dict[str, Callable[[str], _Model]] = {
    "draft-simple": _simple,
    "draft-dflash": _dflash,
    "draft-dflash2": _dflash2,
    "draft-dspark": _dspark,
    "draft-eagle3": _eagle3,
}


@pytest.fixture(scope="session")
def tiny_target(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``tiny_target(architecture)``: the file, written once."""
    folder = tmp_path_factory.mktemp("targets")
    return cache(lambda arch: _TARGETS[arch]().write(folder / f"{arch}.gguf"))


@pytest.fixture(scope="session")
def tiny_quantized(
    server_dir: Path, tiny_target: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Path]:
    """``tiny_quantized(architecture, type)``: the target by llama-quantize, written once."""
    folder = tmp_path_factory.mktemp("quantized")

    def write(arch: str, kind: str) -> Path:
        path = folder / f"{arch}-{kind}.gguf"
        argv = [server_dir / "llama-quantize", tiny_target(arch), path, kind]
        subprocess.run([str(a) for a in argv], check=True, capture_output=True)
        return path

    return cache(write)


@pytest.fixture(scope="session")
def tiny_drafter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """``tiny_drafter(kind, target)``: the file, written once."""
    folder = tmp_path_factory.mktemp("drafters")
    return cache(lambda kind, arch: _DRAFTERS[kind](arch).write(folder / f"{kind}-{arch}.gguf"))

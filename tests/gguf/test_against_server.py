"""What the reader says of a model is what llama.cpp says when it loads the same file."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from srhpm_plugin.gguf import read_model

pytestmark = pytest.mark.server

# Long contexts and many sequences make the megabytes the server prints exact enough.
CELLS = 131072
SEQUENCES = 256

_SSM = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 64,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
    "ssm.group_count": 2,
}
_MOE = {"expert_count": 8, "expert_used_count": 2, "expert_feed_forward_length": 32}


def server_log(server_dir: Path, model: Path, seconds: float = 60) -> str:
    """What the server writes until it listens or gives up."""
    name = next(p for p in server_dir.iterdir() if p.stem == "llama-server")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    argv = [name, "-m", model, "--port", str(port), "-c", str(CELLS), "-np", str(SEQUENCES)]
    argv += ["-kvu", "-t", "1", "-lv", "4", "--no-warmup", "-fit", "off", "-ngl", "0"]
    lines: list[str] = []
    with subprocess.Popen(
        [str(a) for a in argv],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if "listening" in line or len(lines) > 20_000:
                break
        process.kill()
    return "".join(lines)


def figure(log: str, name: str) -> str:
    """The value of a ``print_info`` line."""
    found = re.search(rf"print_info: {name} += (.+)", log)
    assert found, f"{name} not in:\n{log[-3000:]}"
    return found[1].strip()


def per_layer(log: str, name: str, n: int) -> tuple[int, ...]:
    """One number for all layers, or a list."""
    text = figure(log, name)
    numbers = tuple(int(x) for x in re.findall(r"\d+", text))
    return numbers if text.startswith("[") else numbers * n


@pytest.mark.parametrize(
    ("arch", "fields"),
    [
        ("llama", {}),
        ("llama", {"attention.head_count_kv": None, "attention.key_length": None}),
        ("llama", {"attention.value_length": None, "feed_forward_length": None}),
        ("deci", {"attention.head_count": [4, 0, 4, 2], "attention.head_count_kv": [2, 0, 0, 1]}),
        ("qwen3moe", _MOE),
        ("qwen3next", {**_SSM, **_MOE}),
        ("exaone4", {"block_count": 64}),
        ("exaone4", {"block_count": 30, "attention.sliding_window": 256}),
        ("gemma2", {}),
        ("gemma3", {"attention.sliding_window": None}),
        ("gpt-oss", {**_MOE, "attention.sliding_window": 128}),
        ("llama4", {**_MOE, "interleave_moe_layer_step": 2, "attention.sliding_window": 64}),
        ("phi3", {"attention.sliding_window": 2047}),
        ("jamba", {**_SSM, "attention.head_count_kv": [0, 2, 0, 2]}),
    ],
)
def test_hyperparameters(
    arch: str, fields: dict[str, Any], tiny: Callable[..., Path], server_dir: Path
) -> None:
    path = tiny(arch, fields)
    model = read_model(path)
    log = server_log(server_dir, path)
    n = model.n_layer
    assert int(figure(log, "n_layer")) == n
    assert int(figure(log, "n_ctx_train")) == model.n_ctx_train
    assert int(figure(log, "n_embd")) == model.n_embd
    assert int(figure(log, "n_embd_head_k")) == model.key_length
    assert int(figure(log, "n_embd_head_v")) == model.value_length
    assert int(figure(log, "n_expert")) == model.n_expert
    assert int(figure(log, "n_expert_used").split()[0]) == model.n_expert_used
    windowed = int(figure(log, "is_swa_any"))
    assert windowed == bool(model.window_layers)
    assert model.sliding_window == (int(figure(log, "n_swa")) if windowed else 0)
    stated = per_layer(log, "n_head", n)
    assert [h for h in model.n_head if h] == [
        s for s, h in zip(stated, model.n_head, strict=True) if h
    ]
    if fields.get("feed_forward_length", 1) is not None:
        assert max(per_layer(log, "n_ff", n)) == model.n_ff
    assert per_layer(log, "n_head_kv", n) == model.n_head_kv or model.recurrent


def cache_sizes(log: str) -> list[tuple[int, int, float, float]]:
    """Cells, layers, MiB of keys and of values, per key-value cache."""
    pattern = (
        r"size = +[\d.]+ MiB \( *(\d+) cells, +(\d+) layers.*?"
        r"K \(f16\): +([\d.]+) MiB, V \(f16\): +([\d.]+) MiB"
    )
    return [(int(c), int(n), float(k), float(v)) for c, n, k, v in re.findall(pattern, log)]


def expected_cache(
    heads: Sequence[int], layers: Sequence[int], cells: int, length: int
) -> tuple[int, float]:
    used = [heads[i] for i in layers if heads[i]]
    return len(used), sum(used) * length * cells * 2 / 2**20


@pytest.mark.parametrize(
    ("arch", "fields", "mtp"),
    [
        ("llama", {}, 0),
        ("qwen3", {}, 0),
        ("qwen3moe", {}, 0),
        ("qwen35", {}, 0),
        ("qwen35", {}, 1),
        ("qwen35", {"block_count": 8, "full_attention_interval": 4}, 0),
        ("gemma3", {}, 0),
        ("mamba2", {}, 0),
        ("lfm2", {}, 0),
        ("falcon-h1", {}, 0),
    ],
)
def test_cache_and_state_sizes(
    arch: str, fields: dict[str, Any], mtp: int, tiny: Callable[..., Path], server_dir: Path
) -> None:
    """The memory llama.cpp sets aside follows from ModelInfo alone."""
    path = tiny(arch, fields, mtp=mtp)
    m = read_model(path)
    log = server_log(server_dir, path)
    assert m.n_mtp_layers == mtp
    assert "listening" in log, log[-3000:]
    caches = cache_sizes(log)
    every = range(m.n_layer)
    dense = [i for i in every if i not in m.window_layers]
    groups = [g for g in (dense, m.window_layers) if any(m.n_head_kv[i] for i in g)]
    assert len(caches) >= len(groups)
    for group, (cells, n, k_mib, v_mib) in zip(groups, caches, strict=False):
        assert cells == CELLS or group is m.window_layers
        assert (n, k_mib) == pytest.approx(
            expected_cache(m.n_head_kv, group, cells, m.key_length), abs=0.006
        )
        assert (n, v_mib) == pytest.approx(
            expected_cache(m.n_head_kv, group, cells, m.value_length), abs=0.006
        )
    states = re.search(r"R \(f32\): +([\d.]+) MiB, S \(f32\): +([\d.]+) MiB", log)
    assert bool(states) == bool(m.recurrent)
    if states and m.recurrent:
        mib = SEQUENCES * len(m.recurrent.layers) * 4 / 2**20
        assert float(states[1]) == pytest.approx(m.recurrent.conv_state * mib, abs=0.006)
        assert float(states[2]) == pytest.approx(m.recurrent.ssm_state * mib, abs=0.006)

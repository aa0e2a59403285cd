"""A model with some layers on a GPU: our kernels multiply by the weights in RAM, and the GPU
borrows them for prompts. The GPU is a stand-in (native/tests/stand-in-gpu.h) with memory the CPU
cannot read; it logs what it computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

OFF = {"SRHPM_KERNELS": "off"}
LAYERS = "2"  # on the GPU; the head is one of them

Quantized = Callable[[str, str], Path]
MODELS = [("smollm2", ""), ("qwen3", "IQ3_S"), ("qwen3moe", "Q4_K_M"), ("qwen35", "Q8_0")]


class Run(NamedTuple):
    answer: dict[str, Any]
    buffers: set[str]  # kinds that hold weights
    prompt_products: int  # on the GPU, of 32 tokens and more
    token_products: int  # on the GPU, of fewer


def prompt_of(tokens: int) -> list[int]:
    return [20 + i * i % 97 for i in range(tokens)]


@pytest.fixture(scope="session", params=MODELS, ids=lambda m: "-".join(filter(None, m)))
def model(request: pytest.FixtureRequest, smollm2: Path, tiny_quantized: Quantized) -> Path:
    arch, kind = request.param
    return tiny_quantized(arch, kind) if kind else smollm2


@pytest.fixture(scope="session")
def ask(start: Any) -> Callable[..., Run]:
    """``ask(model, *args, env=..., tokens=...)``: the answer to a prompt of so many tokens."""

    def _ask(
        model: Path, *args: str | Path, env: dict[str, str] | None = None, tokens: int = 150
    ) -> Run:
        gpu = {"STANDIN_MEMORY": "4096", "STANDIN_LOG": "1", **(env or {})}
        # A checkpoint would cut the last tokens off the prompt, to be computed on their own.
        placed = ("-ngl", LAYERS, "--fit", "off", "--no-warmup", "--ctx-checkpoints", "0")
        with start(*placed, "-lv", "5", *args, model=model, program="test-server", env=gpu) as api:
            answer = api.complete(prompt_of(tokens), 24, n_probs=5)
        log = api.log.read_text("utf-8", "replace")  # complete once the server has ended
        buffers = set(re.findall(r"(\S+) model buffer size", log))
        counts = re.findall(r"STANDIN0: \d+ nodes, (\d+) short products, (\d+) long", log)
        assert counts, "the GPU took no part"
        return Run(answer, buffers, sum(int(c[1]) for c in counts), sum(int(c[0]) for c in counts))

    return _ask


def first_token(run: Run) -> list[tuple[int, float]]:
    found = run.answer["completion_probabilities"][0]["top_logprobs"]
    return [(one["id"], one["logprob"]) for one in found]


def test_prompts_are_lent_to_the_gpu(ask: Callable[..., Run], model: Path) -> None:
    """As from plain RAM, to the last bit: the first token is the prompt's alone, and the head lies
    on the GPU. The other tokens are computed by our kernels where weights are in RAM."""
    on, off = ask(model), ask(model, env=OFF)
    assert "CPU_SRHPM" in on.buffers and "CPU_SRHPM" not in off.buffers
    assert first_token(on) == first_token(off)
    assert on.prompt_products == off.prompt_products > 0
    assert on.token_products == off.token_products > 0
    kept = ask(model, "--no-op-offload")
    assert kept.prompt_products < on.prompt_products
    assert kept.token_products == on.token_products


def test_a_short_prompt_is_not(ask: Callable[..., Run], smollm2: Path) -> None:
    run, kept = ask(smollm2, tokens=31), ask(smollm2, "--no-op-offload", tokens=31)
    assert run.prompt_products == kept.prompt_products == 0
    assert run.answer["tokens"] == kept.answer["tokens"]
    assert first_token(run) == first_token(kept)


def test_same_tokens_as_with_upstreams_kernels(ask: Callable[..., Run], smollm2: Path) -> None:
    assert ask(smollm2).answer["tokens"] == ask(smollm2, env=OFF).answer["tokens"]


def test_before_the_gpus_own_kind_of_ram(ask: Callable[..., Run], smollm2: Path) -> None:
    """Which upstream prefers where the file is not mapped; vectors stay there."""
    unmapped = ("--load-mode", "none")
    off = ask(smollm2, *unmapped, env=OFF)
    assert {"STANDIN0_Host", "STANDIN0"} <= off.buffers
    on = ask(smollm2, *unmapped)
    assert {"CPU_SRHPM", "STANDIN0_Host", "STANDIN0"} <= on.buffers
    without = ask(smollm2, *unmapped, "--no-host")
    assert "CPU_SRHPM" in without.buffers and "STANDIN0_Host" not in without.buffers
    assert "CPU_SRHPM" not in ask(smollm2, *unmapped, "--no-repack").buffers
    assert first_token(on) == first_token(off) == first_token(without)


def test_experts_in_ram(ask: Callable[..., Run], tiny_quantized: Quantized) -> None:
    """All on the GPU but for the experts of the first layer (of the last, only one token of the
    prompt is computed, and not on the GPU)."""
    model = tiny_quantized("qwen3moe", "Q4_K_M")
    args = ("-ngl", "99", "--n-cpu-moe", "1")
    on, off = ask(model, *args), ask(model, *args, env=OFF)
    assert "CPU_SRHPM" in on.buffers
    assert first_token(on) == first_token(off)
    assert on.prompt_products == off.prompt_products > 0
    assert ask(model, *args, "--no-op-offload").prompt_products < on.prompt_products


def test_drafting_changes_no_token(
    ask: Callable[..., Run], smollm2: Path, draft_args: list[str | Path]
) -> None:
    """Passes cross RAM and GPU; this GPU, unlike a real one, rounds a token alone as in a pass."""
    device = ("--spec-draft-device", "none", "--spec-draft-ngl", "0")
    drafted = ask(smollm2, *draft_args, *device)
    assert drafted.answer["tokens"] == ask(smollm2).answer["tokens"]
    assert drafted.answer["timings"]["draft_n"] > 0


def test_drafting_over_a_set_of_layers(
    ask: Callable[..., Run], smollm2: Path, draft_args: list[str | Path]
) -> None:
    """Any layers on the GPU, the drafter in RAM or there as well: no token changes, and the set is
    the target's alone. With upstream's kernels on both sides it says what the CPU alone does."""
    layers, placed = {"SRHPM_GPU_LAYERS": "3,7-9,20,out"}, ("-ngl", "6")
    plain = ask(smollm2, *placed, env=layers)
    off = [ask(smollm2, *placed, env=layers | OFF), ask(smollm2, "-ngl", "0", env=OFF)]
    assert off[0].answer["tokens"] == off[1].answer["tokens"]
    assert off[0].token_products > off[1].token_products == 0
    for where in (("none", "0"), ("STANDIN0", "all")):
        device = ("--spec-draft-device", where[0], "--spec-draft-ngl", where[1])
        drafted = ask(smollm2, *draft_args, *placed, *device, env=layers)
        assert drafted.answer["tokens"] == plain.answer["tokens"]
        assert drafted.answer["timings"]["draft_n_accepted"] > 0

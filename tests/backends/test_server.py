"""The real server understands every command line and does what the plan says."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import httpx
import pytest

from srhpm_plugin.backends.srhpm import SrhpmBackend
from srhpm_plugin.backends.stock import StockBackend
from srhpm_plugin.launch import serve
from srhpm_plugin.plan import Draft

pytestmark = pytest.mark.server

PROMPT = "one two three four five six seven eight nine ten " * 4


@pytest.fixture(params=[SrhpmBackend, StockBackend])
def backend(request, server):
    return request.param()


@pytest.mark.parametrize(
    ("draft", "changes"),
    [
        ("none", {}),
        ("ngram", {"parallel": 4, "cache_ram_mib": 0, "ctx_checkpoints": 0}),
        ("draft-simple", {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}),
        ("draft-mtp", {"types": ("Q4_K",)}),
        ("none", {"gpu": True, "mmproj": Path("projector.gguf")}),
        ("draft-simple", {"gpu": True, "gpu_layers": 9, "cpu_moe": 3, "kind": "moe"}),
    ],
)
def test_every_flag_is_known(backend, make_plan, drafts, draft, changes):
    argv = backend.command(make_plan(draft=drafts[draft], **changes)).argv
    # The flag at the end prints and exits once all before it are parsed.
    done = subprocess.run(
        [*argv, "--list-devices"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Available devices" in done.stdout
    assert "DEPRECATED" not in done.stdout + done.stderr


def real_plan(make_plan, model: Path, draft: Draft | None, **changes):
    plan = make_plan(("Q4_1",), draft=draft, **changes)
    return dataclasses.replace(plan, model=dataclasses.replace(plan.model, path=model))


def complete(base_url: str, n: int = 24, prompt: str = PROMPT) -> dict:
    body = {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True}
    answer = httpx.post(f"{base_url}/completion", json=body, timeout=300, trust_env=False)
    answer.raise_for_status()
    return answer.json()


def test_plain(backend, make_plan, smollm2):
    plan = real_plan(make_plan, smollm2, None, parallel=2, ctx=256)
    with serve(backend.command(plan)) as running:
        assert httpx.get(backend.ready_url(running.base_url), trust_env=False).status_code == 200
        props = httpx.get(f"{running.base_url}/props", trust_env=False).json()
        timings = complete(running.base_url)["timings"]
    assert props["total_slots"] == 2
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert not timings.get("draft_n")


def test_drafter_model(backend, make_plan, smollm2):
    draft = Draft("draft-simple", smollm2, 3, 7, 0.0)
    with serve(backend.command(real_plan(make_plan, smollm2, draft))) as running:
        timings = complete(running.base_url)["timings"]
    # The target drafts for itself: nearly everything is accepted.
    assert timings["draft_n"] > 14
    assert timings["draft_n_accepted"] > timings["draft_n"] * 0.8


def test_ngram_remembers_nothing(backend, make_plan, smollm2):
    draft = Draft("ngram", None, 0, 7, 0.0)
    other = "The capital of France is"
    with serve(backend.command(real_plan(make_plan, smollm2, draft))) as running:
        first = complete(running.base_url)
        complete(running.base_url, prompt=other)
        again = complete(running.base_url)
    assert first["timings"]["draft_n_accepted"] > 5
    assert again["content"] == first["content"]
    # A drafter with a memory would now draft the whole answer.
    assert again["timings"]["draft_n"] == first["timings"]["draft_n"]
    assert again["timings"]["draft_n_accepted"] == first["timings"]["draft_n_accepted"]

"""Launch plans to turn into command lines."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from srhpm_plugin.model import ModelInfo
from srhpm_plugin.plan import Draft, LaunchPlan, MemoryUse, Predicted

EXE = ".exe" if sys.platform == "win32" else ""


@pytest.fixture(autouse=True)
def _no_inherited_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOCK_SERVER", "RELAX", "DRAFT_N_MIN", "EXACT", "KERNELS", "ISA"):
        monkeypatch.delenv(f"SRHPM_{name}", raising=False)


@pytest.fixture
def make_plan(tmp_path: Path) -> Callable[..., LaunchPlan]:
    """A plan for a model with the given weight types; keywords replace fields.

    ``gpu=True`` lists a GPU among the memory, used or not.
    """

    def make(types: tuple[str, ...] = ("Q4_0",), gpu: bool = False, **changes) -> LaunchPlan:
        model = ModelInfo(
            path=tmp_path / "target.gguf",
            parts=(tmp_path / "target.gguf",),
            arch="llama",
            name="target",
            n_params=1,
            nbytes=1,
            quant_mix=dict.fromkeys(types, 1),
            n_layer=2,
            n_ctx_train=2048,
            n_embd=1,
            n_ff=1,
            n_head=(1, 1),
            n_head_kv=(1, 1),
            key_length=1,
            value_length=1,
            n_vocab=1,
            n_expert=0,
            n_expert_used=0,
            n_mtp_layers=0,
            sliding_window=0,
            recurrent=None,
            tokenizer=None,
            tensors=(),
        )
        fields = {
            "kind": "srhpm",
            "backend": "srhpm",
            "model": model,
            "draft": None,
            "draft_off_reason": None,
            "ctx": 512,
            "parallel": 1,
            "threads": 2,
            "gpu_layers": 0,
            "placement": (),
            "memory": (MemoryUse("CPU"), *((MemoryUse("CUDA0"),) if gpu else ())),
            "predicted": Predicted(),
            "cache_ram_mib": 64,
            "ctx_checkpoints": 1,
        }
        return LaunchPlan(**{**fields, **changes})

    return make


@pytest.fixture
def drafts(tmp_path: Path) -> dict[str, Draft | None]:
    """A drafter of every type."""
    return {
        "none": None,
        "ngram": Draft("ngram", None, 0, 7, 0.0),
        "draft-simple": Draft("draft-simple", tmp_path / "drafter.gguf", 3, 7, 0.75),
        "draft-mtp": Draft("draft-mtp", None, 2, 3, 0.5),
    }


@pytest.fixture
def server(server_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The real server, found by both backends."""
    program = server_dir / f"llama-server{EXE}"
    monkeypatch.setenv("SRHPM_SERVER", str(program))
    monkeypatch.setenv("SRHPM_STOCK_SERVER", str(program))
    return program


@pytest.fixture
def any_program(monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that both backends take for a server; it is not run."""
    monkeypatch.setenv("SRHPM_SERVER", sys.executable)
    monkeypatch.setenv("SRHPM_STOCK_SERVER", sys.executable)
    return Path(sys.executable)

"""A plan says what earlier launches of it measured, and nothing where none did."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srhpm_plugin.dropin.records import LIVE, begin
from srhpm_plugin.plan import HostRequest, LaunchPlan
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.measured import plan_key

LIVE_FILE = "state=ready\ntokens={tokens}\nms={ms}\ndrafted={drafted}\naccepted={accepted}\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "llama-server"
    path.write_bytes(b"a server")
    monkeypatch.setenv("SRHPM_SERVER", str(path))
    return path


@pytest.fixture
def plan(
    models: SimpleNamespace, machines: SimpleNamespace, server: Path, tmp_path: Path
) -> Callable[..., LaunchPlan]:
    """``plan(**asked)`` for one model."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"a model")
    model = replace(models.small, path=path)

    def make(**asked: Any) -> LaunchPlan:
        return make_plan(
            HostRequest(path, **{"draft": "ngram", **asked}),
            model=model, machine=machines.laptop, known=(), command=False,
        )  # fmt: skip

    return make


def launched(
    plan: LaunchPlan, tokens: int = 300, ms: int = 10_000, host: str = "ollama", **more: int
) -> None:
    """A start with this plan that is over."""
    path = begin("k", {"host": host, "kind": plan.kind, "live": True, "plan": plan_key(plan)})
    assert path is not None
    counts = {"drafted": 0, "accepted": 0, "tokens": tokens, "ms": ms, **more}
    path.with_suffix(LIVE).write_text(LIVE_FILE.format(**counts))


def test_nothing_is_known_before(plan: Callable[..., LaunchPlan]) -> None:
    made = plan()
    assert made.predicted.tok_s is None
    assert any("not been measured" in reason for reason in made.reasons)


def test_what_was_measured(plan: Callable[..., LaunchPlan]) -> None:
    launched(plan(), tokens=300, ms=10_000, drafted=200, accepted=150)
    made = plan(ctx=2048, parallel=2)  # neither is known to have been used
    predicted = made.predicted
    assert (predicted.tok_s, predicted.acceptance, predicted.basis) == (30.0, 0.75, "measured")
    assert predicted.stock_tok_s is None
    assert predicted.source == "300 tokens of its last answers in ollama"
    assert not any("not been measured" in reason for reason in made.reasons)


@pytest.mark.parametrize(
    "asked",
    [
        {"draft": "none"},
        {"threads": 3},
        {"cache_type_k": "q8_0"},
        {"relax": 0.5},
        {"kernels": "off"},
    ],
)
def test_of_another_plan_nothing(plan: Callable[..., LaunchPlan], asked: dict[str, Any]) -> None:
    launched(plan())
    assert plan(**asked).predicted.tok_s is None


@pytest.mark.parametrize("which", ["model", "server"])
def test_of_another_file_nothing(plan: Callable[..., LaunchPlan], server: Path, which: str) -> None:
    launched(plan())
    path = server if which == "server" else server.with_name("model.gguf")
    os.utime(path, ns=(1, 1))
    assert plan().predicted.tok_s is None


def test_the_newest_count(plan: Callable[..., LaunchPlan]) -> None:
    launched(plan(), tokens=1000, ms=100_000)  # too old to be needed
    launched(plan(), tokens=200, ms=10_000, host="lm-studio")
    launched(plan(threads=3), tokens=500, ms=1000)
    launched(plan(), tokens=0, ms=0)
    launched(plan(), tokens=100, ms=2_000)
    assert plan().predicted.tok_s == 25.0
    assert plan().predicted.source == "300 tokens of its last answers in ollama, lm-studio"


def test_a_few_words_say_nothing(plan: Callable[..., LaunchPlan]) -> None:
    launched(plan(), tokens=5, ms=100)
    assert plan().predicted.tok_s is None
    for _ in range(7):
        launched(plan(), tokens=5, ms=100)
    assert plan().predicted.tok_s == pytest.approx(50)


def test_records_that_are_damaged_or_gone(plan: Callable[..., LaunchPlan], tmp_path: Path) -> None:
    launched(plan())
    assert plan().predicted.tok_s == 30.0
    for path in Path(os.environ["SRHPM_HOME"]).rglob(f"*{LIVE}"):
        path.write_bytes(b"\xff\0damage")
    assert plan().predicted.tok_s is None
    for path in Path(os.environ["SRHPM_HOME"]).rglob("*.json"):
        path.unlink()
    assert plan().predicted.tok_s is None


def test_without_a_server(plan: Callable[..., LaunchPlan], server: Path) -> None:
    made = plan()
    server.unlink()
    assert plan_key(made) is None

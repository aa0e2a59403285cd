"""``verify`` as a user sees it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

Shell = Callable[..., tuple[int, str, str]]
DRAFTS = ["--drafted", 10, "--accepted", 6]


def test_equal(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", drafting=DRAFTS)
    args = ("verify", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 8)
    code, out, err = shell(*args)
    assert code == 0
    assert "equal: 5 outputs, 40 tokens; 50 drafted, 30 accepted (60%)" in out
    assert "warning" not in err
    code, out, _ = shell(*args, "--json")
    data = json.loads(out)
    assert code == 0
    assert (data["equal"], data["prompts"], data["tokens"]) == (True, 5, 40)
    assert data["first_difference"] is None
    assert data["draft"]["type"] == "ngram"


def test_the_time_left_is_told(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", drafting=DRAFTS)
    _, _, err = shell("verify", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 8)
    asking = [line for line in err.splitlines() if "asking" in line]
    assert asking == [
        "plain: asking",
        "plain: asking, about 5 s left",
        "plan: asking, about 5 s left",
    ]


def test_a_difference_is_named_and_fails(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", drafting=[*DRAFTS, "--differ-at", 3, "--differ-in", "JSON array"])
    args = ("verify", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 8)
    code, out, _ = shell(*args)
    assert code == 1
    assert "different: 1 of 5 outputs" in out
    assert "first difference: prompt json, token 3 after" in out
    assert "preferred it to the plan's by 0.2500 nats" in out
    code, out, _ = shell(*args, "--json")
    assert code == 1
    data = json.loads(out)
    assert data["equal"] is False
    assert (data["first_difference"]["prompt"], data["first_difference"]["position"]) == ("json", 3)


def test_a_drafter_that_drafts_nothing_proves_nothing(
    shell: Shell, fake_backend: Any, smollm2: Path
) -> None:
    fake_backend("fake")
    args = ("verify", smollm2, "--backend", "fake", "--tokens", 4)
    for draft in ("ngram", "auto"):
        code, out, err = shell(*args, "--draft", draft)
        assert code == 1
        assert "error: this proves nothing: the drafter (ngram) proposed no token" in err
        assert f"--draft {draft}" in err, "and what explains the choice"
        code, out, err = shell(*args, "--draft", draft, "--json")
        data = json.loads(out)
        assert (code, data["equal"], data["proof"]) == (1, True, False)
        assert "proposed no token" in data["warning"]
        assert err.startswith("error: ")
    code, out, err = shell(*args, "--draft", "none", "--json")
    assert code == 0
    data = json.loads(out)
    assert (data["equal"], data["drafted"], data["proof"]) == (True, 0, False)
    assert "speculation is off" in data["warning"]
    assert "warning: speculation is off" in err


def test_relaxed_plans_are_not_called_exact(shell: Shell, fake_backend: Any, smollm2: Path) -> None:
    fake_backend("fake", drafting=DRAFTS)
    code, out, err = shell(
        "verify", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 4, "--relax", 0.5
    )
    assert code == 0
    assert "mode relax=0.5" in out
    assert "does not promise equal output" in err


def test_against_stock_and_own_prompts(
    shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path
) -> None:
    journal, prompts = tmp_path / "journal", tmp_path / "prompts"
    prompts.write_text("alpha\nbeta\n")
    fake_backend("fake", ["--journal", journal], DRAFTS)
    fake_backend("stock", ["--journal", journal])
    code, _, _ = shell(
        "verify", smollm2, "--backend", "fake", "--draft", "ngram", "--tokens", 4,
        "--against", "stock", "--prompts", prompts,
    )  # fmt: skip
    assert code == 0
    asked = [json.loads(line) for line in journal.read_text().splitlines()]
    assert [(a["name"], "alpha" in a["prompt"]) for a in asked] == [
        ("stock", True),
        ("stock", False),
        ("fake+draft", True),
        ("fake+draft", False),
    ]


def test_wrong_use(shell: Shell, fake_backend: Any, smollm2: Path, tmp_path: Path) -> None:
    fake_backend("fake")
    code, _, err = shell("verify", smollm2, "--backend", "fake", "--prompts", tmp_path / "none")
    assert (code, "cannot read the prompts" in err) == (1, True)
    code, _, _ = shell("verify", smollm2, "--tokens", 0)
    assert code == 2

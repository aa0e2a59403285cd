"""Comparing outputs: injected differences are found and named, real ones too."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from srhpm_plugin.backend import Command
from srhpm_plugin.bench.prompts import Prompt, round_prompts
from srhpm_plugin.errors import UserError
from srhpm_plugin.launch import Progress
from srhpm_plugin.verify import Side, Verification, verify

Fake = tuple[str, str]
PROMPTS = [Prompt("one", "first"), Prompt("two", "second"), Prompt("three", "third")]


def side(fake: Fake, *options: object) -> Side:
    return Side("side", Command((*fake, *map(str, options)), {}))


def test_equal(fake_server: Fake, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    steps: list[tuple[str, int, int]] = []
    loads: list[tuple[str, Progress]] = []
    outcome = verify(
        side(fake_server, "--journal", journal, "--load-seconds", 0.3),
        side(fake_server, "--journal", journal, "--drafted", 10, "--accepted", 7),
        PROMPTS,
        tokens=20,
        on_step=lambda *step: steps.append(step),
        on_load=lambda *load: loads.append(load),
    )
    assert outcome.equal
    assert outcome.proof
    data = json.loads(json.dumps(outcome.to_json()))
    assert data["equal"] is True
    assert (data["prompts"], data["tokens"], data["first_difference"]) == (3, 60, None)
    assert (data["mode"], data["drafted"], data["accepted"]) == ("exact", 30, 21)
    assert data["acceptance"] == pytest.approx(0.7)
    assert [r["prompt"] for r in data["results"]] == ["one", "two", "three"]
    assert steps[-1] == ("side", 3, 3)
    assert loads
    asked = [json.loads(line) for line in journal.read_text().splitlines()]
    assert len(asked) == 6
    for body in asked:
        assert body["prompt"].startswith("<user>")
        assert body["temperature"] == 0
        assert body["cache_prompt"] is False
        assert body["return_tokens"] is True
        assert body["n_probs"] == 0, "asking for probabilities would switch speculation off"


def test_an_injected_difference_is_found_and_named(fake_server: Fake) -> None:
    outcome = verify(
        side(fake_server),
        side(fake_server, "--differ-at", 7, "--differ-in", "second", "--drafted", 5),
        PROMPTS,
        tokens=20,
    )
    assert not outcome.equal
    assert not outcome.proof
    assert [r.equal for r in outcome.results] == [True, False, True]
    assert outcome.results[1].common == 7
    found = outcome.first_difference
    assert found is not None
    assert (found.prompt, found.position) == ("two", 7)
    assert found.plain_token is not None
    assert found.plan_token == found.plain_token + 5000
    assert found.plain_text == f"<{found.plain_token}>"
    assert found.plan_text == f"<{found.plan_token}>"
    assert found.logit_gap == pytest.approx(0.25)
    assert found.plain_prob == pytest.approx(math.exp(-0.5))
    assert found.reproduced
    assert found.context.endswith(">")
    assert json.loads(json.dumps(outcome.to_json()))["first_difference"]["position"] == 7


def test_a_shorter_output_is_a_difference(fake_server: Fake) -> None:
    outcome = verify(
        side(fake_server), side(fake_server, "--short", 3, "--drafted", 1), PROMPTS, tokens=10
    )
    assert not outcome.equal
    found = outcome.first_difference
    assert found is not None
    assert (found.position, found.plan_token, found.plan_text) == (7, None, "")
    assert math.isnan(found.logit_gap)
    assert outcome.to_json()["first_difference"]["logit_gap"] is None


def test_nothing_drafted_is_no_proof(fake_server: Fake) -> None:
    outcome = verify(side(fake_server), side(fake_server), PROMPTS, tokens=5)
    assert outcome.equal
    assert not outcome.proof
    assert outcome.to_json()["acceptance"] is None


def test_relax_is_not_exact(fake_server: Fake) -> None:
    plan = side(fake_server, "--drafted", 5)
    outcome = verify(side(fake_server), plan, PROMPTS, tokens=5, relax=0.5)
    assert outcome.mode == "relax=0.5"
    assert not outcome.proof


def test_parallel_requests_keep_their_order(fake_server: Fake) -> None:
    prompts = [Prompt(str(n), f"text {n}") for n in range(12)]
    plan = side(fake_server, "--differ-at", 0, "--differ-in", "text 9")
    outcome = verify(side(fake_server), plan, prompts, tokens=5, parallel=4)
    assert [r.prompt for r in outcome.results if not r.equal] == ["9"]


def test_chat_can_be_left_out(fake_server: Fake, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    both = side(fake_server, "--journal", journal)
    verify(both, both, PROMPTS[:1], tokens=2, chat=False)
    assert json.loads(journal.read_text().splitlines()[0])["prompt"] == "first"


def test_refusals_and_deaths_reach_the_user(fake_server: Fake) -> None:
    with pytest.raises(UserError, match="exceeds the available context size"):
        verify(
            side(fake_server),
            side(fake_server),
            [Prompt("x", "too long")],
            tokens=5,
            chat=False,
        )
    with pytest.raises(UserError, match="everything broke"):
        verify(side(fake_server), side(fake_server, "--die-at", 2), PROMPTS, tokens=5)


@pytest.fixture(scope="module")
def repacked(server_dir: Path, smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real model with Q4_K tensors, which stock repacks: a pass over one token then adds up
    in another order than a pass over four."""
    out = tmp_path_factory.mktemp("model") / "q4_k_s.gguf"
    quantize = [str(server_dir / "llama-quantize"), "--allow-requantize"]
    subprocess.run([*quantize, str(smollm2), str(out), "Q4_K_S"], check=True, capture_output=True)
    return out


def real(
    server_dir: Path, model: Path, draft: Path, *options: str, tokens: int, **env: str
) -> Verification:
    server = str(server_dir / "llama-server")
    fixed = (server, "-m", str(model), "-c", "512", "-t", "1", "-np", "1", "--cache-ram", "0")
    speculative = ("-md", str(draft), "--spec-type", "draft-simple")
    return verify(
        Side("plain", Command((*fixed, *options), env)),
        Side("plan", Command((*fixed, *speculative, *options), env)),
        round_prompts(0)[:3:2],
        tokens=tokens,
    )


def test_stocks_inequality_is_found(server_dir: Path, smollm2: Path, repacked: Path) -> None:
    outcome = real(server_dir, repacked, smollm2, tokens=24, SRHPM_KERNELS="off")
    assert outcome.drafted > 0
    assert not outcome.equal
    found = outcome.first_difference
    assert found is not None
    assert found.plain_token != found.plan_token
    assert found.plain_text != found.plan_text
    assert found.reproduced
    assert 0 <= found.logit_gap < 2, "a near tie"


def test_our_kernels_mend_it(server_dir: Path, smollm2: Path, repacked: Path) -> None:
    on = {"SRHPM_KERNELS": "speed", "SRHPM_EXACT": "8"}
    outcome = real(server_dir, repacked, smollm2, tokens=24, **on)
    assert outcome.equal, outcome.first_difference
    assert outcome.drafted > outcome.accepted > 0, "some drafts were rejected, too"


def test_an_invariant_path_is_equal(server_dir: Path, smollm2: Path, repacked: Path) -> None:
    """Without repacking and with a q8_0 cache, sums do not depend on the tokens in a pass."""
    invariant = ("-nr", "-ctk", "q8_0", "-ctv", "q8_0")
    outcome = real(server_dir, repacked, smollm2, *invariant, tokens=24, SRHPM_KERNELS="off")
    assert outcome.equal, outcome.first_difference
    assert outcome.drafted > outcome.accepted > 0, "some drafts were rejected, too"
    assert outcome.proof

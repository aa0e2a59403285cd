"""The real model, widened: the server must give the same tokens and nearly the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from srhpm_plugin.backend import Command
from srhpm_plugin.demo.widen import widen
from srhpm_plugin.launch import serve
from srhpm_plugin.launch.client import Client, Completion

pytestmark = pytest.mark.server

QUESTIONS = ("Why is the sky blue?", "List five uses of a hammer and explain each.")
TOKENS = 48


@pytest.fixture(scope="module")
def answers(
    smollm2: Path, server_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[Completion], list[Completion]]]:
    """Of the model in F16 and of a wide one whose heads form bigger groups."""
    folder = tmp_path_factory.mktemp("wide")
    found = []
    for name, width, ffn, heads, kv_heads in (
        ("same.gguf", 576, 1536, 9, 3),
        ("wide.gguf", 640, 1792, 16, 4),
    ):
        path = folder / name
        widen(smollm2, path, width=width, ffn=ffn, heads=heads, kv_heads=kv_heads)
        argv = (str(server_dir / "llama-server"), "--model", str(path), "--ctx-size", "512")
        more = ("--parallel", "1", "--threads", "2", "--cache-ram", "0", "--no-webui")
        with (
            serve(Command((*argv, *more), {})) as server,
            Client(server.base_url) as client,
        ):
            found.append(
                [client.complete(client.chat_prompt(q), TOKENS, n_probs=5) for q in QUESTIONS]
            )
        path.unlink()
    yield found[0], found[1]


def test_same_tokens(answers: tuple[list[Completion], list[Completion]]) -> None:
    small, wide = answers
    assert [a.tokens for a in wide] == [a.tokens for a in small]


def test_near_probabilities(answers: tuple[list[Completion], list[Completion]]) -> None:
    for small, wide in zip(*answers, strict=True):
        assert len(small.candidates) == TOKENS
        for one, other in zip(small.candidates, wide.candidates, strict=True):
            theirs = {c.token: c.logprob for c in other}
            common = [c for c in one if c.token in theirs]
            assert len(common) >= 3
            for candidate in common:
                # Half-precision products in another order: seen 0.02.
                assert abs(theirs[candidate.token] - candidate.logprob) < 0.2


def test_speaks_english(answers: tuple[list[Completion], list[Completion]]) -> None:
    text = answers[1][0].text.lower()
    assert "sky" in text
    assert " the " in text

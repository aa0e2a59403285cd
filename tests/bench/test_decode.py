"""Paired measuring: who is asked what, in which order, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from srhpm_plugin.backend import Command
from srhpm_plugin.bench import decode
from srhpm_plugin.bench.decode import Engine, Step, fits_together, order, run
from srhpm_plugin.bench.prompts import Prompt, load_prompts, round_prompts
from srhpm_plugin.errors import UserError

Fake = tuple[str, str]
PROMPTS = [Prompt("one", "first"), Prompt("two", "second")]


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def asked(journal: Path) -> list[tuple[str, str]]:
    """(engine, prompt) of every request but the warm-up."""
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return [(line["name"], line["prompt"]) for line in lines if line["prompt"] != "Hello"]


def engine(fake: Fake, journal: Path, name: str, *options: object, **facts: object) -> Engine:
    argv = (*fake, "--name", name, "--journal", str(journal), *map(str, options))
    return Engine(name, "model", None, Command(argv, {}), **facts)  # type: ignore[arg-type]


def test_order_rotates() -> None:
    engines = [Engine(n, "m", None, Command((), {})) for n in "abc"]
    turns = ["".join(e.name for e in order(engines, turn)) for turn in range(4)]
    assert turns == ["abc", "bca", "cab", "abc"]


def test_interleaved_by_prompt(fake_server: Fake, journal: Path) -> None:
    engines = [engine(fake_server, journal, n) for n in "ab"]
    steps: list[Step] = []
    run(engines, PROMPTS, 4, 2, steps.append, together=True)
    first, second = "<user>first</user>", "<user>second</user>"
    assert asked(journal) == [
        ("a", first),
        ("b", first),
        ("b", second),
        ("a", second),
        ("a", first),
        ("b", first),
        ("b", second),
        ("a", second),
    ]
    assert {step.total for step in steps} == {8}
    assert [s.done for s in steps] == sorted(s.done for s in steps)


def test_alternating_by_round(fake_server: Fake, journal: Path) -> None:
    engines = [engine(fake_server, journal, n) for n in "ab"]
    run(engines, PROMPTS, 4, 2, together=False)
    assert [name for name, _ in asked(journal)] == list("aabbbbaa")


def test_other_prompts_in_each_round(fake_server: Fake, journal: Path) -> None:
    run([engine(fake_server, journal, "a")], round_prompts, 2, 3, together=True)
    texts = [text for _, text in asked(journal)]
    assert len(set(texts)) == 15


def test_numbers(fake_server: Fake, journal: Path) -> None:
    engines = [
        engine(fake_server, journal, "base", "--tok-s", 50),
        engine(fake_server, journal, "fast", "--tok-s", 75, "--drafted", 10, "--accepted", 8),
    ]
    base, fast = run(engines, PROMPTS, 10, 3, together=True)
    assert base.tok_s == pytest.approx((50, 50, 50))
    assert fast.ratios == pytest.approx([1.5] * 6)
    data = json.loads(json.dumps(fast.to_json()))
    assert data["engine"] == "fast"
    assert (data["tok_s_median"], data["tok_s_min"], data["tok_s_max"]) == pytest.approx(
        (75, 75, 75)
    )
    assert data["ratio_median"] == pytest.approx(1.5)
    assert data["acceptance"] == pytest.approx(0.8)
    assert data["tokens_equal_to_plain"] is None
    assert base.to_json()["acceptance"] is None


def test_tokens_are_compared_with_plain(fake_server: Fake, journal: Path) -> None:
    plain = engine(fake_server, journal, "plain")
    other_plain = engine(fake_server, journal, "other").command
    engines = [
        plain,
        engine(fake_server, journal, "same", plain=plain.command),
        engine(
            fake_server,
            journal,
            "differs",
            "--differ-at",
            3,
            "--differ-in",
            "second",
            plain=other_plain,
        ),
    ]
    steps: list[Step] = []
    found = run(engines, PROMPTS, 10, 2, steps.append, together=True)
    runs = {r.engine: r for r in found}
    assert {step.total for step in steps} == {16}, "those for comparison count, too"
    assert steps[-1].done == 15
    assert runs["plain"].tokens_equal_to_plain is None
    assert runs["same"].tokens_equal_to_plain is True
    assert runs["differs"].tokens_equal_to_plain is False
    assert (runs["differs"].equal_outputs, runs["differs"].outputs) == (2, 4)
    names = [name for name, _ in asked(journal)]
    assert names.count("plain") == 4, "its answers as an engine are the reference"
    assert names.count("other") == 4, "asked for comparison only"


def test_together_only_when_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Memory:
        available = 1000

    monkeypatch.setattr(decode.psutil, "virtual_memory", Memory)

    def some(memory: dict[str, int], free: dict[str, int] | None = None) -> Engine:
        return Engine("x", "m", None, Command((), {}), memory=memory, free=free or {})

    assert fits_together([some({"CPU": 400}), some({"CPU": 400})])
    assert not fits_together([some({"CPU": 400}), some({"CPU": 500})])
    assert not fits_together([some({}), some({"CPU": 1})]), "unknown sizes"
    gpu = {"CUDA0": 600}
    one = some({"CPU": 1, "CUDA0": 300}, gpu)
    assert fits_together([one, one])
    assert not fits_together([one, one, one])
    assert not fits_together([some({"CUDA1": 1})])


def test_a_death_names_the_dead(fake_server: Fake, journal: Path) -> None:
    engines = [
        engine(fake_server, journal, "a", "--die-at", 3),
        engine(fake_server, journal, "b"),
    ]
    with pytest.raises(UserError, match="everything broke"):
        run(engines, PROMPTS, 4, 2, together=True)


def test_prompt_rounds_never_repeat() -> None:
    texts = [p.text for n in range(20) for p in round_prompts(n)]
    assert len(set(texts)) == 100
    assert {p.name for p in round_prompts(0)} == {"prose", "code", "json", "list", "german"}


def test_prompt_files(tmp_path: Path) -> None:
    path = tmp_path / "prompts"
    path.write_text("\ufefffirst prompt\n\n  second  \n", encoding="utf-8")
    assert [p.text for p in load_prompts(path)] == ["first prompt", "second"]
    path.write_text('["one\\ntwo", "three", ""]', encoding="utf-8")
    assert [p.text for p in load_prompts(path)] == ["one\ntwo", "three"]
    for content in (b"", b"\n \n", b"[1, 2]", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(UserError, match="cannot read the prompts"):
            load_prompts(path)
    with pytest.raises(UserError, match="No such file"):
        load_prompts(tmp_path / "none")


def test_a_real_pair(server_dir: Path, smollm2: Path) -> None:
    server = str(server_dir / "llama-server")
    plain = Command(
        (
            server,
            "-m",
            str(smollm2),
            "-c",
            "512",
            "-t",
            "1",
            "-np",
            "1",
            "--cache-ram",
            "0",
            "-nr",
            "-ctk",
            "q8_0",
            "-ctv",
            "q8_0",
        ),
        {},
    )
    spec = Command((*plain.argv, "-md", str(smollm2), "--spec-type", "draft-simple"), {})
    engines = [
        Engine("plain", "smol", None, plain),
        Engine("spec", "smol", "itself", spec, plain=plain),
    ]
    first, second = run(engines, round_prompts(0)[:2], 24, 1, together=True)
    assert min(first.tok_s) > 0
    assert (first.drafted, first.acceptance) == (0, None)
    assert second.drafted > 0
    assert second.tokens_equal_to_plain is True

"""The sentences claim what the numbers show and no more."""

from __future__ import annotations

from srhpm_plugin.bench.decode import DecodeRun
from srhpm_plugin.demo.verdict import verdict


def run(
    name: str,
    ratios: tuple[float, ...],
    *,
    accepted: int = 0,
    equal: int = 0,
    outputs: int = 0,
) -> DecodeRun:
    return DecodeRun(
        engine=name,
        model="m",
        draft="draft-simple d" if accepted else None,
        tok_s=tuple(10 * r for r in ratios),
        ratios=ratios,
        drafted=100 if accepted else 0,
        accepted=accepted,
        equal_outputs=equal,
        outputs=outputs,
    )


PLAIN = run("stock plain", (1.0, 1.0, 1.0))


def test_gain() -> None:
    text = verdict([PLAIN, run("srhpm", (1.6, 1.9, 1.7), accepted=75, equal=3, outputs=3)])
    assert text == [
        "SR-HPM is 1.70x stock plain (1.60 to 1.90 over 3 pairs).",
        "srhpm: all 3 outputs have the tokens of its plain run.",
    ]


def test_a_gain_that_not_every_pair_shows() -> None:
    text = verdict([PLAIN, run("srhpm", (0.9, 1.3, 1.2), accepted=75)])[0]
    assert "not in every pair" in text


def test_pairs_that_disagree_show_nothing() -> None:
    text = verdict([PLAIN, run("srhpm", (0.42, 0.98, 1.84), accepted=94)])[0]
    assert text.startswith("No difference to stock plain can be told, 0.98x")


def test_no_gain_says_why() -> None:
    bad = verdict([PLAIN, run("srhpm", (0.7, 0.8, 0.9), accepted=20)])[0]
    assert bad.startswith("No gain here, 0.80x")
    assert "only 20%" in bad
    good = verdict([PLAIN, run("srhpm", (0.7, 0.8, 0.9), accepted=80)])[0]
    assert "80%" in good
    assert "does not pay" in good
    off = verdict([PLAIN, run("srhpm", (1.0, 1.0, 1.0))])[0]
    assert "speculation is off" in off


def test_a_hair_is_no_gain() -> None:
    assert verdict([PLAIN, run("srhpm", (1.01, 1.02, 1.02), accepted=80)])[0].startswith("No gain")


def test_against_stock_with_drafter() -> None:
    stock = run("stock with drafter", (1.0, 1.2, 1.0), accepted=70, equal=1, outputs=3)
    text = verdict([PLAIN, stock, run("srhpm", (2.0, 2.4, 2.0), accepted=75, equal=3, outputs=3)])
    assert "It is faster than stock with drafter (2.00x)." in text
    assert "stock with drafter: 2 of 3 outputs differ from its plain run." in text
    slow = verdict([PLAIN, stock, run("srhpm", (0.5, 0.6, 0.5), accepted=75)])
    assert "It is slower than stock with drafter (0.50x)." in slow
    same = verdict([PLAIN, stock, run("srhpm", (1.0, 1.2, 1.01), accepted=75)])
    assert any("no notable difference" in s for s in same)

"""The chart is well-formed, to scale and fit for dark pages."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from srhpm_plugin.bench.svg import Bar, bars

NAMESPACE = "{http://www.w3.org/2000/svg}"


def chart(*rows: Bar) -> ElementTree.Element:
    return ElementTree.fromstring(bars('A & B <"x">', "tok/s", rows, "footer & more"))


def test_bars_are_to_scale() -> None:
    root = chart(
        Bar("stock", "no drafter", 10.0, 9.0, 11.0, "(1.00x)"),
        Bar("srhpm <b>", "a & b", 20.0, 18.0, 22.0),
    )
    widths = [float(r.get("width", "")) for r in root.iter(f"{NAMESPACE}rect")]
    assert widths[1] == pytest.approx(2 * widths[0], rel=0.01)
    texts = [t.text for t in root.iter(f"{NAMESPACE}text")]
    assert "srhpm <b>" in texts
    assert "10.0 (1.00x)" in texts
    assert "footer & more" in texts
    assert root.get("aria-label") == 'A & B <"x">'


def test_everything_lies_inside() -> None:
    root = chart(Bar("a", "", 0.7, 0.1, 999.9), Bar("b", "", 0.0, 0.0, 0.0))
    _, _, width, height = (float(v) for v in root.get("viewBox", "").split())
    for line in root.iter(f"{NAMESPACE}line"):
        assert 0 <= float(line.get("x2", "")) <= width
        assert 0 <= float(line.get("y2", "")) <= height
    for rect in root.iter(f"{NAMESPACE}rect"):
        assert float(rect.get("x", "")) + float(rect.get("width", "")) <= width


@pytest.mark.parametrize("value", [0.0, 1e-3, 3.0, 5e4])
def test_any_size(value: float) -> None:
    root = chart(Bar("a", "", value, value, value))
    assert 2 <= len(list(root.iter(f"{NAMESPACE}line"))) <= 12


def test_both_themes() -> None:
    text = bars("t", "u", [])
    assert "prefers-color-scheme: dark" in text

"""Bars of parts are well-formed, to scale and inside the picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from srhpm_plugin.bench.stacks import Section, Stack, stacks

NAMESPACE = "{http://www.w3.org/2000/svg}"


def draw(*sections: Section) -> ElementTree.Element:
    return ElementTree.fromstring(stacks('A & "B"', sections, "foot & more"))


def of_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [e for e in root.iter() if e.get("class") == name]


def number(element: ElementTree.Element, name: str) -> float:
    return float(element.get(name, ""))


def test_parts_follow_each_other_to_scale() -> None:
    row = Stack("<CPU>", [10.0, 0.0, 30.0], "a & b", limit=80.0)
    root = draw(Section("Memory <of>", "GiB", ("x", "unused", "y"), [row], "limit"))
    legend, first = of_class(root, "p0")
    _, third = of_class(root, "p2")
    assert not of_class(root, "p1"), "neither a bar nor a line of the legend"
    assert number(third, "width") == pytest.approx(3 * number(first, "width"), rel=0.01)
    assert number(third, "x") == pytest.approx(number(first, "x") + number(first, "width"), abs=0.2)
    _, limit = of_class(root, "limit")
    length = number(limit, "x1") - number(first, "x")
    assert length == pytest.approx(8 * number(first, "width"), rel=0.02)
    texts = {t.text for t in root.iter(f"{NAMESPACE}text")}
    assert {"<CPU>", "a & b", "x", "y", "Memory <of>", "GiB", "limit", "foot & more"} <= texts
    assert "unused" not in texts
    assert legend is not first


def test_sections_have_scales_of_their_own() -> None:
    small = Section("a", "s", ("",), [Stack("1", [1.0])])
    large = Section("b", "s", ("",), [Stack("1000", [1000.0])])
    one, other = of_class(draw(small, large), "p0")
    assert number(one, "width") == pytest.approx(number(other, "width"))
    assert number(one, "y") < number(other, "y")


@pytest.mark.parametrize("value", [0.0, 1e-3, 4.0, 5e4])
@pytest.mark.parametrize("count", [1, 4, 9])
def test_everything_lies_inside(count: int, value: float) -> None:
    rows = [Stack("long " * 20, [value] * 9, "remark " * 20, limit=value) for _ in range(count)]
    root = draw(*[Section("h", "u", "abcdefghi", rows, "limit")] * 2)
    _, _, width, height = (float(v) for v in root.get("viewBox", "").split())
    for line in root.iter(f"{NAMESPACE}line"):
        assert 0 <= number(line, "x2") <= width
        assert 0 <= number(line, "y2") <= height
    for rect in root.iter(f"{NAMESPACE}rect"):
        assert 0 <= number(rect, "x") <= width - number(rect, "width")
        assert 0 <= number(rect, "y") <= height - number(rect, "height")


def test_no_rows() -> None:
    assert draw(Section("h", "u", (), [])).tag == f"{NAMESPACE}svg"

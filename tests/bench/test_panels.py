"""The panels are well-formed, to scale and inside the picture."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from srhpm_plugin.bench.panels import Panel, Value, panels

NAMESPACE = "{http://www.w3.org/2000/svg}"


def draw(*given: Panel) -> ElementTree.Element:
    return ElementTree.fromstring(panels('A & "B"', ("a", "b <"), "limit >", given, "foot & more"))


def panel(title: str, *middles: float, limit: float | None = None) -> Panel:
    groups = [(str(i), [Value(v, v / 2, v * 2)] * 2) for i, v in enumerate(middles)]
    return Panel(title, groups, limit)


def heights(root: ElementTree.Element, kind: str) -> list[float]:
    found = [r for r in root.iter(f"{NAMESPACE}rect") if r.get("class") == kind]
    return [float(r.get("height", "")) for r in found[1:]]  # the first is the legend's


def test_bars_are_to_scale() -> None:
    root = draw(panel("Q4_K & <x>", 10.0, 20.0, limit=5.0))
    for kind in ("bar", "other"):
        one, two = heights(root, kind)
        assert two == pytest.approx(2 * one, rel=0.01)
    legend, limit = (e for e in root.iter(f"{NAMESPACE}line") if e.get("class") == "limit")
    floor = max(
        float(e.get("y1", "")) for e in root.iter(f"{NAMESPACE}line") if e.get("class") == "grid"
    )
    assert floor - float(limit.get("y1", "")) == pytest.approx(
        heights(root, "bar")[0] / 2, rel=0.02
    )
    texts = [t.text for t in root.iter(f"{NAMESPACE}text")]
    assert {"Q4_K & <x>", "a", "b <", "limit >", "foot & more"} <= set(texts)
    assert legend is not limit


def test_no_limit_no_line() -> None:
    root = draw(panel("model", 1.0))
    assert not [e for e in root.iter(f"{NAMESPACE}line") if e.get("class") == "limit"]


@pytest.mark.parametrize("count", [1, 3, 4, 19])
@pytest.mark.parametrize("value", [0.0, 1e-3, 4.0, 5e4])
def test_everything_lies_inside(count: int, value: float) -> None:
    root = draw(*[panel(str(n), value, value, value, limit=value) for n in range(count)])
    _, _, width, height = (float(v) for v in root.get("viewBox", "").split())
    for line in root.iter(f"{NAMESPACE}line"):
        assert 0 <= float(line.get("x2", "")) <= width
        assert 0 <= float(line.get("y2", "")) <= height
    for rect in root.iter(f"{NAMESPACE}rect"):
        assert 0 <= float(rect.get("x", "")) <= width - float(rect.get("width", ""))
        assert 0 <= float(rect.get("y", "")) <= height - float(rect.get("height", ""))

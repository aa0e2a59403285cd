"""Bars in the terminal: their lengths say what the numbers say."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from srhpm_plugin.plan import HostRequest, LaunchPlan, MemoryUse, Predicted
from srhpm_plugin.planner import make_plan
from srhpm_plugin.planner.bars import memory_bars, memory_table, time_bars
from srhpm_plugin.planner.printing import emit
from srhpm_plugin.planner.times import Time, times

GIB = 1 << 30
SHADES = "█▓▒▚▞▀░"


class Written(io.StringIO):
    """A text with a character set."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def printed(table: Callable[[Console], object], encoding: str = "utf-8", **console: object) -> str:
    file = Written(encoding)
    out = Console(file=file, width=console.pop("width", 100), **console)  # type: ignore[arg-type]
    emit(out, table(out))  # type: ignore[arg-type]
    return file.getvalue()


HALF_FULL = MemoryUse("CPU", weights=3 * GIB, kv=GIB, draft=GIB, free=10 * GIB)


def test_the_parts_fill_the_share_that_they_take() -> None:
    full = MemoryUse("CUDA0", compute=2 * GIB, free=2 * GIB)
    cpu, gpu = printed(lambda out: memory_bars([HALF_FULL, full], out)).splitlines()
    assert cpu.split() == ["CPU", "█" * 12 + "▓" * 4 + "▚" * 4 + "·" * 20, "50%", "of", "free"]
    assert gpu.split() == ["CUDA0", "▒" * 40, "100%", "of", "free"]


def test_more_than_is_free_fills_the_bar_and_says_so() -> None:
    over = MemoryUse("CUDA0", weights=3 * GIB, free=2 * GIB)
    assert printed(lambda out: memory_bars([over], out)).split()[1:3] == ["█" * 40, "150%"]
    none = MemoryUse("CUDA1", free=0)
    assert printed(lambda out: memory_bars([none], out)).split()[1:3] == ["·" * 40, "0%"]


def test_the_table_explains_the_marks() -> None:
    lines = printed(lambda out: memory_table([HALF_FULL], out)).splitlines()
    marks = dict(line.split()[1::-1] for line in lines if line[:1] in SHADES and line.strip())
    assert marks == {"weights": "█", "kv": "▓", "draft": "▚"}


def test_letters_where_there_are_no_blocks() -> None:
    bar = printed(lambda out: memory_bars([HALF_FULL], out), "ascii").split()[1]
    assert bar == "#" * 12 + "k" * 4 + "d" * 4 + "." * 20
    assert "d draft" in printed(lambda out: memory_table([HALF_FULL], out), "ascii")


def test_colours_tell_parts_apart_where_there_are_any() -> None:
    text = printed(
        lambda out: memory_bars([HALF_FULL], out), force_terminal=True, color_system="standard"
    )
    assert "▓" not in text
    assert len({part[:4] for part in text.split("\x1b[") if "█" in part}) == 3


@pytest.mark.parametrize("width", [24, 40, 200])
def test_bars_keep_to_the_terminal(width: int) -> None:
    text = printed(
        lambda out: memory_bars([HALF_FULL], out),
        force_terminal=True,
        color_system=None,
        width=width,
    )
    assert max(map(len, text.splitlines())) <= width
    assert "█" in text


def test_times_are_to_scale() -> None:
    found = [Time("stock", 100.0), Time("ours", 50.0, "2.00x", (("weights", 30.0), ("rest", 20.0)))]
    stock, ours = printed(lambda out: time_bars(found, out)).splitlines()
    assert stock.split() == ["stock", "█" * 40, "100.0", "ms"]
    assert ours.split() == ["ours", "█" * 12 + "▓" * 8, "50.0", "ms,", "2.00x"]


@pytest.fixture
def plan(models: SimpleNamespace, machines: SimpleNamespace) -> LaunchPlan:
    request = HostRequest(models.small.path, draft="none")
    return make_plan(request, model=models.small, machine=machines.laptop, known=(), command=False)


def test_only_known_times_are_shown(plan: LaunchPlan) -> None:
    def of(**known: float) -> list[tuple[str, float, str]]:
        return [
            (t.name, t.ms, t.remark) for t in times(replace(plan, predicted=Predicted(**known)))
        ]

    assert of() == []
    assert of(tok_s=20.0) == [("a token, this plan", 50.0, "")]
    assert of(tok_s=20.0, stock_tok_s=10.0, pass_ms=70.0) == [
        ("a token, stock", 100.0, ""),
        ("a token, this plan", 50.0, "2.00x"),
        ("one pass", 70.0, ""),
    ]

"""The status page, its JSON and the metrics, over made-up models."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_engine import TIMINGS
from serve_parts import FakeCatalog, FakeScheduler, plan_of, served

from srhpm_plugin.errors import UserError
from srhpm_plugin.machine.types import Cpu, Gpu, Machine, Memory
from srhpm_plugin.serve.app import Parts
from srhpm_plugin.serve.interfaces import Loaded, Need, ServedModel
from srhpm_plugin.serve.stats import finished
from srhpm_plugin.serve.status import plans

NASTY = "<script>alert(1)</script>\"'&\x1b[31m"


class Page(HTMLParser):
    """What a browser would make of it: tags, attributes and the text people see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with a GPU; plans are made for all but ``huge``."""
    cpu = Cpu("x", 8, 4, 4, 4, 4, None, True, ())
    memory = Memory(32 << 30, 20 << 30, 0, None, "always", 1)
    machine = Machine(cpu, memory, (Gpu("CUDA0", "RTX", 8 << 30, 6 << 30, "nvml"),))

    def plan(model: ServedModel, need: Need, *rest: Any) -> Any:
        if model.name.startswith("huge"):
            raise UserError("huge does not fit", "it needs 90 GiB", "use a smaller quantization")
        return plan_of(model.path)

    monkeypatch.setattr(plans.Plans.__init__, "__defaults__", (plan, lambda settings: machine))
    return machine


@pytest.fixture
def busy(parts: Parts, catalog: FakeCatalog, scheduler: FakeScheduler) -> Parts:
    """A host with something to show, the names all as nasty as can be."""
    one = served(f"{NASTY}:latest", Path(f"/m/{NASTY}.gguf"))
    catalog.models = [one, served("huge"), served("odd", unfit=f"it paints {NASTY}"), served("ok")]
    plan = plan_of(one.path)
    plan = replace(plan, reasons=(f"srhpm: {NASTY}",), warnings=("a warning",))
    now = datetime.now(timezone.utc)
    loaded = Loaded(one, plan, Need(), 4711, now, now + timedelta(minutes=4), 1, 2, restarts=1)
    scheduler.resident = [loaded]
    parts.stats.finished(finished(one.name, "/v1/chat/completions", TIMINGS))
    parts.stats.trouble(f"{NASTY} ended: free some memory", one.name)
    return parts


def looked(client: httpx.Client) -> Any:
    """The JSON, once all plans are made."""
    for _ in range(200):
        now = client.get("/srhpm.json").json()
        if all(m["looked_at"] for m in now["models"]):
            return now
        time.sleep(0.02)
    raise AssertionError("plans were not made")


@pytest.mark.usefixtures("busy")
def test_nothing_of_a_name_becomes_markup(client: httpx.Client) -> None:
    looked(client)
    html = client.get("/srhpm").text
    page = Page(html)
    assert page.open == []
    assert "script" not in page.tags
    assert "<script" not in html
    assert "\x1b" not in html
    assert html.count("&lt;script&gt;alert(1)") >= 5
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    assert not [v for n, v in page.attributes if n in ("src", "href") and not re.match("[?/]", v)]


@pytest.mark.usefixtures("busy")
def test_the_page_says_what_runs_where_and_how_well(client: httpx.Client) -> None:
    looked(client)
    text = Page(client.get("/srhpm").text).text
    for words in (
        "100.0 tokens/s in the last answer",
        "75% of all",  # 3 of 4 drafted tokens
        "100% 50%",
        "1 of 2 busy",
        "more, unless it is used",
        "1 time after it had died",
        "CPU 4 KiB (embd, 0-1, output)",
        "6.00 GiB free of 8.00 GiB",
        "it needs 90 GiB; use a smaller quantization",
        "it paints",
        "free some memory",
        "n-grams, 0 to 7 tokens",
    ):
        assert words in text


def test_a_host_without_anything_says_what_to_do(
    client: httpx.Client, catalog: FakeCatalog
) -> None:
    catalog.models = []
    text = Page(client.get("/srhpm").text).text
    assert "Nothing is loaded" in text
    assert "SRHPM_MODELS" in text
    assert "None since the start" in text


def test_the_policy_allows_the_style_sheet_and_nothing_else(client: httpx.Client) -> None:
    import base64
    import hashlib

    answer = client.get("/srhpm")
    sheet = re.search("<style>(.*?)</style>", answer.text, re.DOTALL)
    assert sheet
    digest = base64.b64encode(hashlib.sha256(sheet[1].encode()).digest()).decode()
    policy = answer.headers["content-security-policy"]
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in policy
    assert "url(" not in sheet[1]
    assert "unsafe" not in policy
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("application/json", True),
        ("application/json, text/html", True),
        ("text/html,application/xhtml+xml,*/*;q=0.8", False),
        ("*/*", False),
    ],
)
def test_json_by_accept(client: httpx.Client, accept: str, json: bool) -> None:
    answer = client.get("/srhpm", headers={"Accept": accept})
    assert answer.headers["content-type"].startswith("application/json") == json


@pytest.mark.usefixtures("busy")
def test_the_json_has_the_figures(client: httpx.Client) -> None:
    now = looked(client)
    (one,) = now["loaded"]
    assert (one["drafted"], one["accepted"], one["tok_s_last"]) == ([2, 2], [2, 1], 100.0)
    assert one["plan"]["placement"][0]["device"] == "CPU"
    models = {m["name"]: m for m in now["models"]}
    assert models["ok"]["kind"] == "srhpm"
    assert models["ok"]["why_not"] is None
    assert "90 GiB" in models["huge"]["why_not"]
    cpu, gpu = now["memory"]
    assert (gpu["device"], gpu["total"], gpu["models"]) == ("CUDA0", 8 << 30, [])
    assert cpu["models"][0]["bytes"] == 5421
    assert now["errors"][0]["model"].startswith("<script>")


def test_tokens_that_stream_now_are_counted(
    client: httpx.Client, busy: Parts, catalog: FakeCatalog, scheduler: FakeScheduler
) -> None:
    name = catalog.models[0].name
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        busy.stats.pulse.beat(name, 2)
        time.sleep(0.01)
    speed = client.get("/srhpm.json").json()["loaded"][0]["tok_s_now"]
    assert 20 < speed <= 200
    assert "tokens/s now" in Page(client.get("/srhpm").text).text
    scheduler.resident = [replace(one, active=0) for one in scheduler.resident]
    assert "tokens/s in the last answer" in Page(client.get("/srhpm").text).text


def test_a_models_names_count_together(
    client: httpx.Client, busy: Parts, catalog: FakeCatalog
) -> None:
    """Clients say it with and without ``:latest``."""
    short = catalog.models[0].name.removesuffix(":latest").upper()
    busy.stats.finished(finished(short, "/api/chat", TIMINGS))
    one = client.get("/srhpm.json").json()["loaded"][0]
    assert (one["drafted"], one["accepted"], one["tok_s_mean"]) == ([4, 4], [4, 2], 100.0)


def test_live_can_be_paused(client: httpx.Client) -> None:
    assert 'http-equiv="refresh"' in client.get("/srhpm").text
    assert 'http-equiv="refresh"' not in client.get("/srhpm?live=off").text


# Prometheus' text format: name{labels} value, each value of a label with \\, \" and \n escaped.
_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\\n]|\\["\\n])*",?)+)\})? ([-+.e0-9]+)')


@pytest.mark.usefixtures("busy")
def test_metrics_are_well_formed_and_say_what_the_page_says(
    client: httpx.Client, parts: Parts
) -> None:
    parts.stats.finished(finished('a\\"b\nc', "/v1/completions", None, outcome="failed"))
    answer = client.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answer.text.endswith("\n")
    typed: set[str] = set()
    seen: set[str] = set()
    samples: dict[str, list[tuple[str, float]]] = {}
    for line in answer.text.split("\n")[:-1]:
        if line.startswith("# TYPE "):
            name = line.split()[2]
            assert name not in typed  # a metric's samples come together
            typed.add(name)
        elif not line.startswith("# HELP "):
            found = _SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] in typed
            assert line.rsplit(" ", 1)[0] not in seen
            seen.add(line.rsplit(" ", 1)[0])
            samples.setdefault(found[1], []).append((found[2] or "", float(found[3])))
    assert all(name.startswith("srhpm_") for name in samples)
    assert ('model="a\\\\\\"b\\nc",outcome="failed"', 1) in samples["srhpm_requests_total"]
    accepted = [n for labels, n in samples["srhpm_accepted_tokens_total"]]
    assert accepted == [2, 1]
    assert [n for _, n in samples["srhpm_tokens_total"]] == [5, 0]
    assert samples["srhpm_slots_busy"][0][1] == 1

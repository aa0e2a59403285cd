"""The snapshot as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ...planner.units import size
from . import bars
from .html import Html, element, join
from .style import SHEET

_REFRESH = 5  # seconds
_SHOWN_ERRORS = 10
_COLUMNS = 6


def page(now: Mapping[str, Any], live: bool = True) -> str:
    """The page.

    Args:
        now: a snapshot, see :func:`srhpm_plugin.serve.status.snapshot.snapshot`.
        live: it loads itself again every few seconds.
    """
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="refresh", content=_REFRESH) if live else None,
        element("title", "SR-HPM"),
        Html(f"<style>{SHEET}</style>"),
    )
    main = element(
        "main",
        _header(now, live),
        element("h2", "Loaded"),
        _loaded(now),
        element("h2", "Memory"),
        element("div", *(_device(d) for d in now["memory"]), class_="cards"),
        element("h2", "Models"),
        _models(now["models"]),
        element("h2", "Errors"),
        _errors(now["errors"]),
    )
    body = element("body", main)
    return "<!DOCTYPE html>\n" + element("html", head, body, lang="en")


def _header(now: Mapping[str, Any], live: bool) -> Html:
    done = sum(n for sums in now["requests"].values() for n in sums["requests"].values())
    switch = element("a", "pause", href="?live=off") if live else element("a", "live", href="?")
    said = f"{now['version']} · up {_duration(now['up_seconds'])} · {_count(done, 'request')}"
    links = join(switch, " · ", element("a", "JSON", href="/srhpm.json"))
    return element(
        "header",
        element("h1", "SR-HPM"),
        element("span", said, class_="faint"),
        element("span", links, class_="push small"),
    )


def _loaded(now: Mapping[str, Any]) -> Html:
    if not now["loaded"]:
        words = "Nothing is loaded: a model loads when a client asks for it."
        return element("p", words, class_="faint")
    cards = (_card(one, now["now"]) for one in now["loaded"])
    return element("div", *cards, class_="cards")


def _card(one: Mapping[str, Any], now: str) -> Html:
    plan = one["plan"]
    speed, words = _speed(one)
    facts = [
        ("Drafter", plan["drafter"] or f"none: {plan['draft_off_reason'] or 'not asked for'}"),
        ("Context", f"{plan['ctx']:,} tokens"),
        ("Slots", f"{one['active']} of {one['slots']} busy"),
        ("Where", ", ".join(_place(p) for p in plan["placement"])),
        ("Stays", _stays(one["expires"], now)),
    ]
    if one["restarts"]:
        facts.append(("Started again", f"{_count(one['restarts'], 'time')} after it had died"))
    badge = element("span", plan["kind"], class_="badge")
    kind = element("span", "embeddings", class_="badge plain") if one["embedding"] else None
    why = [*plan["warnings"], *plan["reasons"]]
    return element(
        "section",
        element("div", element("h3", one["model"]), badge, kind, class_="top"),
        element("p", element("span", speed, class_="big"), " ", words),
        _acceptance(one),
        element(
            "dl",
            *(join(element("dt", name), element("dd", text)) for name, text in facts),
            class_="facts",
        ),
        element(
            "details",
            element("summary", "Why this plan"),
            element("ul", *(element("li", reason) for reason in why), class_="small"),
        )
        if why
        else None,
        class_="card",
    )


def _speed(one: Mapping[str, Any]) -> tuple[str, Html]:
    if one["tok_s_now"] is not None and one["active"]:  # not what fades out after an answer
        speed, words = one["tok_s_now"], "tokens/s now"
    elif one["tok_s_last"] is not None:
        speed, words = one["tok_s_last"], "tokens/s in the last answer"
    elif one["predicted"] is not None:
        speed, words = one["predicted"], "tokens/s expected"
    else:
        return "–", element("span", "tokens/s: no answer yet", class_="faint")
    mean = one["tok_s_mean"]
    more = f", {mean:.1f} on average" if mean is not None else ""
    return f"{speed:.1f}", element("span", words + more, class_="faint")


def _acceptance(one: Mapping[str, Any]) -> Html | None:
    drafted, accepted = one["drafted"], one["accepted"]
    if not any(drafted):
        return None
    shares = [a / d for a, d in zip(accepted, drafted, strict=False) if d]
    whole = sum(accepted) / sum(drafted)
    return element(
        "figure",
        bars.steps(shares),
        element("div", *(element("span", f"{s:.0%}") for s in shares), class_="numbers"),
        element(
            "figcaption",
            f"Drafted tokens accepted, by position: {whole:.0%} of all",
            class_="small",
        ),
    )


def _place(place: Mapping[str, Any]) -> str:
    return f"{place['device']} {size(place['bytes'])} ({', '.join(place['layers'])})"


def _stays(expires: str | None, now: str) -> str:
    if expires is None:
        return "loaded for good"
    left = (datetime.fromisoformat(expires) - datetime.fromisoformat(now)).total_seconds()
    return f"{_duration(int(left))} more, unless it is used" if left > 0 else "until it is idle"


def _device(device: Mapping[str, Any]) -> Html:
    total, free = device["total"], device["free"]
    shares = [(share["model"], share["bytes"]) for share in device["models"]]
    others = max(total - free - sum(n for _, n in shares), 0)
    name = "Memory (RAM)" if device["device"] == "CPU" else device["device"]
    keys = [_key(f"b{i % bars.COLORS}", f"{m}: {size(n)}") for i, (m, n) in enumerate(shares)]
    other = _key("bo", f"other: {size(others)}") if others else None
    said = f"{size(free)} free of {size(total)}"
    return element(
        "section",
        element(
            "div", element("h3", name), element("span", said, class_="faint small"), class_="top"
        ),
        element("figure", bars.stacked([n for _, n in shares], others, total)),
        element("div", *keys, other, class_="legend small"),
        class_="card",
    )


def _key(color: str, words: str) -> Html:
    return element("span", element("span", class_=f"key {color}"), words)


def _models(models: Sequence[Mapping[str, Any]]) -> Html:
    if not models:
        words = "No models: pull one with your host, or name a folder of .gguf files in"
        return element("p", words, " ", element("code", "SRHPM_MODELS"), ".", class_="faint")
    head = element(
        "tr",
        element("th", "Name"),
        element("th", "Plan"),
        element("th", "Drafter", class_="optional"),
        element("th", "Tokens/s", class_="n"),
        element("th", "Size", class_="n"),
        element("th", "From", class_="optional"),
    )
    rows = (_row(m) for m in models)
    return element("div", element("table", head, *rows), class_="wide")


def _row(model: Mapping[str, Any]) -> Html:
    loaded = element("span", "loaded", class_="badge") if model["loaded"] else None
    row = element(
        "tr",
        element(
            "td",
            model["name"],
            " ",
            loaded,
            class_="name",
        ),
        element("td", _kind(model)),
        element("td", model["drafter"] or "–", class_="optional"),
        element("td", _expected(model), class_="n"),
        element("td", size(model["bytes"]), class_="n"),
        element("td", model["origin"], class_="optional"),
    )
    if not model["why_not"]:
        return row
    reason = element("td", model["why_not"], colspan=_COLUMNS, class_="small faint")
    return join(row, element("tr", reason, class_="more"))


def _kind(model: Mapping[str, Any]) -> Html:
    if model["why_not"]:
        return element("span", "cannot run", class_="badge bad")
    if model["kind"] is None:
        return element("span", "…", class_="faint")
    kind = "badge plain" if model["kind"] == "stock" else "badge"
    return element("span", model["kind"], class_=kind)


def _expected(model: Mapping[str, Any]) -> Html:
    if model["predicted"] is None:
        return element("span", "not measured" if model["kind"] else "–", class_="faint")
    stock = f" ({model['stock']:.1f} stock)" if model["stock"] is not None else ""
    return join(f"{model['predicted']:.1f}", element("span", stock, class_="faint"))


def _errors(errors: Sequence[Mapping[str, Any]]) -> Html:
    if not errors:
        return element("p", "None since the start.", class_="faint")
    return join(*(_error(error) for error in errors[:_SHOWN_ERRORS]))


def _error(error: Mapping[str, Any]) -> Html:
    when = error["when"].replace("T", " ").removesuffix("+00:00") + " UTC"
    about = f"{when} · {error['model']}" if error["model"] else when
    return element(
        "div",
        element("div", about, class_="faint small"),
        element("div", error["text"]),
        class_="trouble",
    )


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _duration(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{_count(days, 'day')} {hours % 24} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds} s"

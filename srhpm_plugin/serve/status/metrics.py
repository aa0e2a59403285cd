"""Figures in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """A name with its samples.

    Attributes:
        name: without ``srhpm_``.
        kind: ``counter`` or ``gauge``.
        help: one sentence.
        samples: labels and value.
    """

    name: str
    kind: str
    help: str
    samples: list[Sample] = field(default_factory=list)


def text(metrics: Iterable[Metric]) -> str:
    """All of them; those without samples are left out."""
    return "".join(line + "\n" for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterator[str]:
    if not metric.samples:
        return
    name = f"srhpm_{metric.name}"
    yield f"# HELP {name} " + metric.help.replace("\\", r"\\").replace("\n", r"\n")
    yield f"# TYPE {name} {metric.kind}"
    for labels, value in metric.samples:
        said = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        yield f"{name}{{{said}}} {value!r}" if said else f"{name} {value!r}"


def _escaped(word: str) -> str:
    return word.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def metrics(now: Mapping[str, Any]) -> list[Metric]:
    """Those of a snapshot."""
    info = Metric("info", "gauge", "The version that runs.", [({"version": now["version"]}, 1)])
    start = datetime.fromisoformat(now["since"]).timestamp()
    since = Metric("start_time_seconds", "gauge", "When it started.", [({}, start)])
    errors = Metric("errors_kept", "gauge", "Errors that the status page shows.")
    errors.samples.append(({}, len(now["errors"])))
    return [
        info,
        since,
        errors,
        *_requests(now["requests"]),
        *_loaded(now["loaded"]),
        *_memory(now),
    ]


def _requests(requests: Mapping[str, Mapping[str, Any]]) -> Iterator[Metric]:
    outcomes = Metric("requests_total", "counter", "Requests, by how they ended.")
    for model, sums in requests.items():
        for outcome, n in sorted(sums["requests"].items()):
            outcomes.samples.append(({"model": model, "outcome": outcome}, n))
    yield outcomes
    for key, name, words in (
        ("seconds", "request_seconds_total", "Seconds from arrival to the last byte."),
        ("prompt_tokens", "prompt_tokens_total", "Tokens of prompts that were read."),
        ("cached_tokens", "cached_tokens_total", "Tokens of prompts taken from a cache."),
        ("prompt_seconds", "prompt_seconds_total", "Seconds spent on reading prompts."),
        ("tokens", "tokens_total", "Tokens generated."),
        ("decode_seconds", "decode_seconds_total", "Seconds spent on generating."),
    ):
        samples: list[Sample] = [({"model": m}, sums[key]) for m, sums in requests.items()]
        yield Metric(name, "counter", words, samples)
    for key, words in (("drafted", "proposed"), ("accepted", "accepted")):
        by_place: list[Sample] = [
            ({"model": m, "position": str(i + 1)}, n)
            for m, sums in requests.items()
            for i, n in enumerate(sums[key])
        ]
        what = f"Drafted tokens {words}, by their position in the draft."
        yield Metric(f"{key}_tokens_total", "counter", what, by_place)


def _loaded(loaded: Iterable[Mapping[str, Any]]) -> Iterator[Metric]:
    slots = Metric("slots", "gauge", "Requests that a loaded model serves at once.")
    busy = Metric("slots_busy", "gauge", "Requests that it serves now.")
    restarts = Metric("restarts", "gauge", "How often its server was started again after dying.")
    speed = Metric("tokens_per_second", "gauge", "Tokens streamed per second, now.")
    for one in loaded:
        labels = {"model": one["model"], "pid": str(one["pid"])}
        slots.samples.append((labels, one["slots"]))
        busy.samples.append((labels, one["active"]))
        restarts.samples.append((labels, one["restarts"]))
        speed.samples.append((labels, one["tok_s_now"] or 0))
    yield from (slots, busy, restarts, speed)


def _memory(now: Mapping[str, Any]) -> Iterator[Metric]:
    total = Metric("memory_bytes", "gauge", "Memory of a device.")
    free = Metric("memory_free_bytes", "gauge", "What of it is free.")
    planned = Metric("memory_planned_bytes", "gauge", "What loaded models are to take of it.")
    for device in now["memory"]:
        where = {"device": device["device"]}
        total.samples.append((where, device["total"]))
        free.samples.append((where, device["free"]))
        # One model may be loaded twice, e.g. for embeddings; a series has one value.
        sums: dict[str, int] = {}
        for share in device["models"]:
            sums[share["model"]] = sums.get(share["model"], 0) + share["bytes"]
        for model, n in sums.items():
            planned.samples.append(({**where, "model": model}, n))
    yield from (total, free, planned)

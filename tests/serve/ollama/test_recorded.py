"""Answers compared with those of a real Ollama, which ``ollama_compare.py --record`` wrote down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from ollama_cases import CASES, DIFFERENCES
from ollama_compare import RECORDED, ask, connect, differences, unexplained

RECORD: Mapping[str, Any] = json.loads(RECORDED.read_text("utf-8"))


def test_every_request_is_recorded_and_every_difference_has_one() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert set(names) == set(RECORD["answers"])
    assert set(DIFFERENCES) <= set(names)


def test_a_difference_is_seen() -> None:
    record = RECORD["answers"]["chat, whole"]
    assert differences(record, record) == []
    more = {**record, "fields": {**record["fields"], "extra": "string"}}
    less = {**record, "fields": {k: v for k, v in record["fields"].items() if k != "done"}}
    assert differences(record, more) == ["fields: extra is ours alone"]
    assert differences(record, less) == ["fields: done is missing"]
    assert unexplained("chat, whole", ["fields: done is missing"])
    assert unexplained("version", []) == [
        "no longer so: fields: srhpm",
        "no longer so: values: srhpm",
    ]


@pytest.mark.server
def test_answers_differ_from_ollamas_on_purpose_only(real_url: str) -> None:
    wrong = {}
    with connect(real_url) as client:
        for case in CASES:
            lines = differences(RECORD["answers"][case.name], ask(client, case).recorded())
            if found := unexplained(case.name, lines):
                wrong[case.name] = found
    assert wrong == {}

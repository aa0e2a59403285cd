"""docs/ollama-api.md has every route, every field and every option."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from ollama_compare import RECORDED

from srhpm_plugin.serve.app import Parts
from srhpm_plugin.serve.ollama import options, requests
from srhpm_plugin.serve.ollama.routes import VERSION, routes

PAGE = (Path(__file__).parents[3] / "docs" / "ollama-api.md").read_text("utf-8")
WORDS = set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", PAGE))
OF_GGUF = ("model_info", "projector_info")
ARGUMENTS = {"city", "parameter"}  # of tools in the requests compared


def test_every_route_is_there(parts: Parts) -> None:
    for route in routes(parts):
        path = re.sub(r"\{(\w+)\}", r":\1", route.path)
        assert path in WORDS, path


def test_every_field_of_an_answer_is_there() -> None:
    names: set[str] = set()
    for answer in json.loads(RECORDED.read_text("utf-8"))["answers"].values():
        for path in (*answer.get("fields", ()), *answer.get("last", ())):
            parts = path.replace("[]", "").split(".")
            names.update([parts[0]] if parts[0] in OF_GGUF else parts)
    assert names - WORDS - ARGUMENTS - {""} == set()


def test_every_field_of_a_request_is_there() -> None:
    asked = {f.name for kind in (requests.Chat, requests.Generate) for f in fields(kind)}
    ours = {"schema": "format", "render_only": "_debug_render_only"}
    assert {ours.get(name, name) for name in asked} - WORDS == set()
    assert {f.name for f in fields(requests.Message)} - WORDS == set()


def test_every_option_has_its_default() -> None:
    for name, default in options.SAMPLING.items():
        assert re.search(rf"^\| `{name}` \| {re.escape(f'{default:g}')}\b", PAGE, re.M), name
    assert set(options.LOADING) - WORDS == set()


def test_the_version_is_the_one_compared_with() -> None:
    assert json.loads(RECORDED.read_text("utf-8"))["version"] == VERSION
    assert f"Ollama {VERSION}" in PAGE

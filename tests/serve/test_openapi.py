"""Our routes against their description, with requests made up by schemathesis: what fits it and
what does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import positive_data_acceptance
from serve_engine import FakeEngine, listening
from serve_models import THINKING, TOOLS, write_gguf
from serve_parts import FakeCatalog, FakeScheduler, FakeStore
from serve_parts import served as model
from starlette.routing import Route

from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.settings import Settings
from srhpm_plugin.serve.stats import Stats

DESCRIPTION = YAML(typ="safe").load(
    (Path(__file__).parents[2] / "docs" / "openapi.yaml").read_text("utf-8")
)
schema = schemathesis.openapi.from_dict(DESCRIPTION)


# What fits the description is refused where no file has the digest that was made up, no picture is
# one, or no thought is to be had of the model.
_BY_CHANCE = ("/api/blobs/{digest}", "/api/create", "/api/chat", "/api/generate")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, FakeCatalog]]:
    """Our application, over a fake engine, and its models."""
    folder = tmp_path_factory.mktemp("models")
    able = write_gguf(folder / "able.gguf", TOOLS + THINKING)
    catalog = FakeCatalog([model("fake:latest", able, mmproj=able)])
    with listening(FakeEngine().app()) as engine:
        store = FakeStore(catalog, tmp_path_factory.mktemp("blobs"))
        parts = Parts(catalog, FakeScheduler(engine), store, Settings(), Stats())
        with listening(create_app(parts)) as url:
            yield url, catalog


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_routes_keep_to_their_description(
    case: schemathesis.Case, served: tuple[str, FakeCatalog]
) -> None:
    """No fault of ours whatever is sent; statuses, types and bodies as described; what does not
    fit the description is refused."""
    url, catalog = served
    catalog.models = catalog.models[:1]  # none that an earlier request made
    left_out: list[Any] = []
    if "501" in case.operation.definition.raw["responses"]:
        left_out.append(not_a_server_error)  # what others serve and we do not
    if case.operation.path in _BY_CHANCE:
        left_out.append(positive_data_acceptance)
    case.call_and_validate(base_url=url, excluded_checks=left_out)


def test_every_described_route_is_there() -> None:
    catalog = FakeCatalog()
    parts = Parts(catalog, FakeScheduler(""), FakeStore(catalog, Path()), Settings(), Stats())
    ours = {
        (route.path.replace(":path", ""), method.lower())
        for route in create_app(parts).routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    described = {(p, method) for p, methods in DESCRIPTION["paths"].items() for method in methods}
    assert described <= ours
    # "/" is a word for people, and HEAD comes with GET.
    assert {(p, m) for p, m in ours - described if p != "/" and m != "head"} == set()

"""Our routes against their description, with requests made up by schemathesis: what fits it and
what does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML
from serve_engine import FakeEngine, listening
from serve_parts import FakeCatalog, FakeScheduler, FakeStore
from starlette.routing import Route

from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.settings import Settings
from srhpm_plugin.serve.stats import Stats

DESCRIPTION = YAML(typ="safe").load(
    (Path(__file__).parents[2] / "docs" / "openapi.yaml").read_text("utf-8")
)
schema = schemathesis.openapi.from_dict(DESCRIPTION)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Our application, over a fake engine."""
    catalog = FakeCatalog()
    with listening(FakeEngine().app()) as engine:
        store = FakeStore(catalog, tmp_path_factory.mktemp("blobs"))
        parts = Parts(catalog, FakeScheduler(engine), store, Settings(), Stats())
        with listening(create_app(parts)) as url:
            yield url


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_routes_keep_to_their_description(case: schemathesis.Case, served: str) -> None:
    """No fault of ours whatever is sent; statuses, types and bodies as described; what does not
    fit the description is refused."""
    case.call_and_validate(base_url=served)


def test_every_described_route_is_there(served: str) -> None:
    catalog = FakeCatalog()
    parts = Parts(catalog, FakeScheduler(served), FakeStore(catalog, Path()), Settings(), Stats())
    ours = {
        (route.path.replace(":path", ""), method.lower())
        for route in create_app(parts).routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    described = {(p, method) for p, methods in DESCRIPTION["paths"].items() for method in methods}
    assert described <= ours
    mine = {(p, m) for p, m in ours if p.startswith(("/v1", "/srhpm", "/metrics")) and m != "head"}
    assert mine <= described

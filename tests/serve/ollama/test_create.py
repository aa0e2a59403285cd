"""/api/create and blobs."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from serve_models import TOOLS, write_gguf
from serve_parts import FakeCatalog, FakeStore, served

from srhpm_plugin.serve.app import Parts


def send(client: httpx.Client, content: bytes) -> str:
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    assert client.head(f"/api/blobs/{digest}").status_code == 404
    assert client.post(f"/api/blobs/{digest}", content=content).status_code == 201
    assert client.head(f"/api/blobs/{digest}").status_code == 200
    assert client.post(f"/api/blobs/{digest}", content=content).status_code == 200
    return digest


def create(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    answer = client.post("/api/create", json={"model": "mine", **body})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def refused(client: httpx.Client, **body: Any) -> str:
    answer = client.post("/api/create", json={"model": "mine", **body})
    assert answer.status_code in (400, 404), answer.text
    text: str = answer.json()["error"]
    return text


@pytest.fixture
def model_file(tmp_path: Path) -> bytes:
    return write_gguf(tmp_path / "source.gguf", TOOLS).read_bytes()


def test_from_a_blob(
    client: httpx.Client, catalog: FakeCatalog, parts: Parts, model_file: bytes
) -> None:
    digest = send(client, model_file)
    said = create(
        client,
        files={"model.gguf": digest},
        system="be brief",
        template="{{ .Prompt }}",
        license=["a", "b"],
        parameters={"num_ctx": 999, "stop": ["x"], "temperature": 1},
        messages=[{"role": "user", "content": "hi"}],
    )
    assert said[0] == {"status": f"using existing layer {digest}"}
    assert said[-1] == {"status": "success"}
    mine = catalog.find("mine:latest")
    assert isinstance(parts.store, FakeStore)
    assert mine.path == parts.store.blob(digest.removeprefix("sha256:"))
    assert (mine.system, mine.template, mine.licenses) == (
        "be brief",
        "{{ .Prompt }}",
        ("a", "b"),
    )
    assert mine.parameters == {"num_ctx": 999, "stop": ("x",), "temperature": 1}
    assert (mine.ctx, mine.messages) == (999, ({"role": "user", "content": "hi"},))
    shown = client.post("/api/show", json={"model": "mine"}).json()
    assert shown["capabilities"] == ["completion", "tools"]
    assert f"{'temperature':<30} 1" in shown["parameters"]


def test_from_a_model_keeps_what_is_not_said(
    client: httpx.Client, catalog: FakeCatalog, model_file: bytes
) -> None:
    base = served(system="old", parameters={"top_k": 1, "top_p": 0.5}, licenses=("a",), ctx=77)
    catalog.models = [base]
    drafter = send(client, model_file)
    body = {
        "from": "fake",
        "draft_files": {"d.gguf": drafter},
        "parameters": {"top_k": 2},
        "stream": False,
    }
    answer = client.post("/api/create", json={"name": "me/mine:v1", **body})
    assert answer.json() == {"status": "success"}
    mine = catalog.find("me/mine:v1")
    assert (mine.path, mine.system, mine.ctx) == (base.path, "old", 77)
    assert mine.parameters == {"top_k": 2, "top_p": 0.5}
    assert mine.drafter is not None and mine.drafter.name == drafter.removeprefix("sha256:")
    assert (mine.parent, mine.licenses) == ("fake:latest", ("a",))


def test_a_projector_is_known_by_its_header(
    client: httpx.Client, catalog: FakeCatalog, tmp_path: Path, model_file: bytes
) -> None:
    projector = write_gguf(tmp_path / "p.gguf", kind="mmproj").read_bytes()
    files = {"a.gguf": send(client, projector), "b.gguf": send(client, model_file)}
    create(client, files=files)
    mine = catalog.find("mine")
    assert mine.mmproj is not None and mine.mmproj.read_bytes() == projector
    assert mine.path.read_bytes() == model_file
    assert "1 projectors were sent" in refused(client, files={"a": files["a.gguf"]})


def test_an_adapter(
    client: httpx.Client, catalog: FakeCatalog, tmp_path: Path, model_file: bytes
) -> None:
    lora = write_gguf(tmp_path / "l.gguf", kind="adapter").read_bytes()
    create(client, **{"from": "fake"}, adapters={"l": send(client, lora)})
    [adapter] = catalog.find("mine").adapters
    assert adapter.read_bytes() == lora
    wrong = {"l": send(client, model_file)}
    assert "no GGUF of a LoRA" in refused(client, **{"from": "fake"}, adapters=wrong)


def test_what_is_refused(client: httpx.Client, catalog: FakeCatalog, tmp_path: Path) -> None:
    assert refused(client) == "neither 'from' or 'files' was specified"
    assert refused(client, **{"from": "nobody"}).startswith("model 'nobody' not found")
    assert refused(client, model="a b", **{"from": "fake"}) == "invalid model name"
    assert "belongs to ollama" in refused(client, model="fake", **{"from": "fake"})
    assert refused(client, files={"a": "sha256:" + "z" * 64}) == "invalid digest format"
    assert refused(client, files={"a": "../../etc/passwd"}) == "invalid digest format"
    assert "send it to /api/blobs" in refused(client, files={"a": "sha256:" + "0" * 64})
    assert "not quantized here" in refused(client, **{"from": "fake"}, quantize="Q4_K_M")
    assert refused(client, **{"from": "fake"}, parameters={"magic": 1}) == (
        "unknown parameter 'magic'"
    )
    text = {"a.gguf": send(client, b"this is no model")}
    assert "convert_hf_to_gguf.py" in refused(client, files=text)
    cut = {"a.gguf": send(client, write_gguf(tmp_path / "c.gguf").read_bytes()[:200])}
    assert "a file cannot be used" in refused(client, files=cut)
    assert [m.name for m in catalog.models] == ["fake:latest"]


def test_a_blob_must_be_what_its_digest_says(client: httpx.Client, parts: Parts) -> None:
    wrong = "sha256:" + "0" * 64
    answer = client.post(f"/api/blobs/{wrong}", content=b"abc")
    got = "sha256:" + hashlib.sha256(b"abc").hexdigest()
    problem = f'digest mismatch, expected "{wrong}", got "{got}"'
    assert (answer.status_code, answer.json()) == (400, {"error": problem})
    assert client.head(f"/api/blobs/{wrong}").status_code == 404
    for name in ("sha256:00", "md5:" + "0" * 64, "..%2F..%2Fx", "sha256-" + "g" * 64):
        assert client.post(f"/api/blobs/{name}", content=b"abc").status_code in (400, 404)

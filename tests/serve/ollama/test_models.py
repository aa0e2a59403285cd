"""Lists, show, ps, copy, delete, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import httpx
from serve_models import THINKING, TOOLS
from serve_parts import THEN, FakeCatalog, FakeScheduler, plan_of, served

from srhpm_plugin.plan import MemoryUse
from srhpm_plugin.serve.interfaces import Loaded, Need
from srhpm_plugin.serve.ollama.describe import human


def test_the_root_and_the_version(client: httpx.Client) -> None:
    assert client.get("/").text == "Ollama is running"
    assert client.head("/").status_code == 200
    said = client.get("/api/version").json()
    assert said["version"].split(".")[0] == "0" and said["srhpm"]
    assert client.head("/api/version").status_code == client.head("/api/tags").status_code == 200
    assert client.get("/api/generate").status_code == 405


def test_tags_describe_from_the_header(
    client: httpx.Client, catalog: FakeCatalog, add_model: Callable[..., Any]
) -> None:
    catalog.models = []
    add_model("able", TOOLS + THINKING, {"tokenizer.ggml.fim_pre_token_id": 3})
    [one] = client.get("/api/tags").json()["models"]
    assert one == {
        "name": "able:latest",
        "model": "able:latest",
        "modified_at": "2026-01-02T03:04:05.000000Z",
        "size": 4321,
        "digest": "a" * 64,
        "details": {
            "parent_model": "",
            "format": "gguf",
            "family": "llama",
            "families": ["llama"],
            "parameter_size": "5K",
            "quantization_level": "Q4_K_M",
            "context_length": 2048,
            "embedding_length": 64,
        },
        "capabilities": ["completion", "tools", "thinking", "insert"],
    }


def test_an_embedding_model_and_one_that_sees(
    client: httpx.Client, catalog: FakeCatalog, add_model: Callable[..., Any]
) -> None:
    catalog.models = []
    add_model("embedder", fields={"llama.pooling_type": 1})
    add_model("seeing", mmproj=add_model("projector").path)
    said = {m["name"]: m["capabilities"] for m in client.get("/api/tags").json()["models"]}
    assert said["embedder:latest"] == ["embedding"]
    assert said["seeing:latest"] == ["completion", "vision"]
    for path, use in (("/api/chat", "chat"), ("/api/generate", "generate")):
        answer = client.post(path, json={"model": "embedder"})
        assert answer.json() == {"error": f'"embedder" does not support {use}'}


def test_a_file_that_cannot_be_read_is_listed_all_the_same(client: httpx.Client) -> None:
    [one] = client.get("/api/tags").json()["models"]
    assert one["name"] == "fake:latest" and one["capabilities"] == ["completion"]
    assert client.post("/api/show", json={"model": "fake"}).json()["model_info"] == {}


def test_show(client: httpx.Client, add_model: Callable[..., Any]) -> None:
    stored = {
        "system": "be\nbrief",
        "parameters": {"stop": ["<a>", "b c"], "top_k": 3, "temperature": 0.5},
        "licenses": ("one", "two"),
        "messages": ({"role": "user", "content": "hi"},),
        "parent": "base:latest",
    }
    model = add_model("able", TOOLS, **stored)
    said = client.post("/api/show", json={"model": "able"}).json()
    assert said["template"] == TOOLS and said["system"] == "be\nbrief"
    assert said["license"] == "one\ntwo" and said["messages"] == list(stored["messages"])
    assert said["parameters"].splitlines() == [
        f"{'stop':<30} {chr(34)}<a>{chr(34)}",
        f"{'stop':<30} {chr(34)}b c{chr(34)}",
        f"{'top_k':<30} 3",
        f"{'temperature':<30} 0.5",
    ]
    assert said["details"]["parent_model"] == "base:latest"
    assert "context_length" not in said["details"]
    info = said["model_info"]
    assert info["general.architecture"] == "llama" and info["llama.block_count"] == 1
    assert info["general.parameter_count"] == 16 * 64 + 64 * 64 + 64
    assert info["tokenizer.ggml.tokens"] is None and info["general.languages"] is None
    assert not {"general.name", "tokenizer.chat_template"} & set(info)
    assert {"name": "token_embd.weight", "type": "F32", "shape": [64, 16]} in said["tensors"]
    assert said["capabilities"] == ["completion", "tools"]
    lines = said["modelfile"].splitlines()
    assert (
        f"FROM {model.path}" in lines and 'SYSTEM """be' in lines and "PARAMETER top_k 3" in lines
    )
    verbose = client.post("/api/show", json={"name": "able", "verbose": True}).json()
    assert verbose["model_info"]["tokenizer.ggml.tokens"][:2] == ["t0", "t1"]
    assert verbose["model_info"]["general.languages"] == ["en"]


def test_a_stores_own_template_is_the_one_shown(
    client: httpx.Client, add_model: Callable[..., Any]
) -> None:
    add_model("able", TOOLS, template="{{ .Prompt }}")
    said = client.post("/api/show", json={"model": "able"}).json()
    assert said["template"] == "{{ .Prompt }}"


def test_show_refuses_as_ollama_does(client: httpx.Client) -> None:
    for body, status, text in (
        ({}, 400, "model is required"),
        ({"model": "nobody"}, 404, "model 'nobody' not found"),
        ({"model": "../../etc/passwd"}, 404, "model '../../etc/passwd' not found"),
    ):
        answer = client.post("/api/show", json=body)
        assert (answer.status_code, answer.json()) == (status, {"error": text})


def test_ps(client: httpx.Client, catalog: FakeCatalog, scheduler: FakeScheduler) -> None:
    assert client.get("/api/ps").json() == {"models": []}
    later = datetime(2026, 1, 2, 3, 9, 5, tzinfo=timezone.utc)
    for name, expires in (("soon", later), ("never", None)):
        model = served(name)
        plan = plan_of(model.path)
        memory = (*plan.memory, MemoryUse("CUDA0", weights=1000, kv=24))
        plan = type(plan)(**{**vars(plan), "memory": memory})
        scheduler.resident.append(Loaded(model, plan, Need(), 7, THEN, expires, 0, 1))
    never, soon = client.get("/api/ps").json()["models"]
    assert (never["name"], soon["name"]) == ("never", "soon")
    assert soon["expires_at"] == "2026-01-02T03:09:05.000000Z"
    assert never["expires_at"] > "2100"
    assert (soon["size_vram"], soon["size"]) == (1024, 1024 + 4321 + 1000 + 100)
    assert soon["context_length"] == 4096


def test_copy_and_delete(
    client: httpx.Client, catalog: FakeCatalog, scheduler: FakeScheduler
) -> None:
    original = catalog.models[0]
    answer = client.post("/api/copy", json={"source": "fake", "destination": "me/twin"})
    assert (answer.status_code, answer.content) == (200, b"")
    twin = catalog.find("me/twin:latest")
    assert twin.path == original.path and twin.origin == "own"
    answer = client.request("DELETE", "/api/delete", json={"model": "me/twin"})
    assert (answer.status_code, answer.content) == (200, b"")
    assert catalog.models == [original] and scheduler.unloaded == ["me/twin:latest"]


def test_what_cannot_be_copied_or_deleted(client: httpx.Client, scheduler: FakeScheduler) -> None:
    def copy(source: str, destination: str) -> tuple[int, str]:
        body = {"source": source, "destination": destination}
        answer = client.post("/api/copy", json=body)
        return answer.status_code, answer.json()["error"]

    assert copy("nobody", "a") == (404, 'model "nobody" not found')
    assert copy("", "a") == (400, 'source "" is invalid')
    for name in ("", "a b", "../x", "a/b/c/d", "/etc", "a:b:c", "-x", "a" * 81, "x\\y", "a/../b"):
        status, text = copy("fake", name)
        assert (status, "is invalid" in text) == (400, True), name
    assert copy("fake", "fake")[0] == 400  # another host's name
    answer = client.request("DELETE", "/api/delete", json={"name": "fake"})
    assert answer.status_code == 403 and "belongs to ollama" in answer.json()["error"]
    assert scheduler.unloaded == []  # and it stays loaded
    answer = client.request("DELETE", "/api/delete", json={"name": "nobody"})
    assert answer.json() == {"error": "model 'nobody' not found"}


def test_pulling_what_is_here_succeeds_and_the_rest_says_what_to_do(client: httpx.Client) -> None:
    answer = client.post("/api/pull", json={"model": "fake"})
    assert answer.text.splitlines()[-1] == '{"status":"success"}'
    whole = client.post("/api/pull", json={"model": "fake", "stream": False})
    assert whole.json() == {"status": "success"}
    answer = client.post("/api/pull", json={"model": "nobody"})
    assert answer.status_code == 404 and "srhpm-plugin models" in answer.json()["error"]


def test_what_needs_ollamas_servers_is_refused(client: httpx.Client) -> None:
    for method, path, status in (
        ("POST", "/api/push", 501),
        ("POST", "/api/me", 501),
        ("POST", "/api/signout", 501),
        ("DELETE", "/api/user/keys/abc", 501),
        ("POST", "/api/experimental/web_search", 403),
        ("POST", "/api/experimental/web_fetch", 403),
    ):
        answer = client.request(method, path, json={"model": "fake"})
        assert answer.status_code == status and answer.json()["error"]


def test_what_clients_ask_of_the_cloud(client: httpx.Client) -> None:
    assert client.get("/api/status").json()["cloud"]["disabled"] is True
    said = client.get("/api/experimental/model-recommendations").json()
    assert said == {"recommendations": []}


def test_numbers_of_weights_as_ollama_writes_them() -> None:
    assert [
        human(n) for n in (134_515_008, 2_000_000_000, 1_720_000_000, 3_000_000, 999, 4100)
    ] == [
        "134.52M",
        "2B",
        "1.7B",
        "3M",
        "999",
        "4K",
    ]

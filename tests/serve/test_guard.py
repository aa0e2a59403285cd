"""Who is let in: names, pages, keys, sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256
from typing import Any

import httpx
import pytest
from serve_engine import listening
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from srhpm_plugin.serve.app import Parts, create_app
from srhpm_plugin.serve.origins import Origins, own_name
from srhpm_plugin.serve.settings import Settings

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def serving(parts: Parts) -> Iterator[Any]:
    """``serving(key=..., ...)`` is a client of our application with these settings."""
    with ExitStack() as stack:

        def start(**settings: Any) -> httpx.Client:
            told = replace(parts, settings=Settings(**settings))
            url = stack.enter_context(listening(create_app(told)))
            return stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=10))

        yield start


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:11434", True),
        ("localhost:11434", True),
        ("LOCALHOST", True),
        ("[::1]:11434", True),
        ("192.168.1.7:11434", True),
        ("100.64.0.9", True),
        ("host.docker.internal:11434", True),
        ("desk.local", True),
        ("app.localhost:3000", True),
        ("", True),
        ("evil.example", False),
        ("localhost.evil.example:11434", False),
        ("127.0.0.1.nip.io", False),
        ("8.8.8.8", False),
        ("evil.example:11434", False),
        ("local", True),
    ],
)
def test_names_that_no_stranger_can_own(host: str, ours: bool) -> None:
    assert own_name(host) is ours


@pytest.mark.parametrize(
    ("origin", "more", "allowed"),
    [
        ("http://localhost", (), True),
        ("http://localhost:3000", (), True),
        ("https://127.0.0.1:8443", (), True),
        ("http://[::1]:80", (), True),
        ("app://obsidian.md", (), True),
        ("vscode-webview://0a1b", (), True),
        ("tauri://localhost", (), True),
        ("https://evil.example", (), False),
        ("http://localhost.evil.example", (), False),
        ("http://localhost:3000.evil.example", (), False),
        ("null", (), False),
        ("null", ("*",), True),
        ("https://evil.example", ("*",), True),
        ("https://chat.example.com", ("https://*.example.com",), True),
        ("https://chat.example.com:8443", ("https://*.example.com",), False),
        ("https://example.com.evil.org", ("https://example.com",), False),
        ("https://chatxexample.com", ("https://chat.example.com",), False),
        ("chrome-extension://abc", ("chrome-extension://*",), True),
        ("https://chat.example.com", ("https://chat.example.com/",), True),
    ],
)
def test_pages(origin: str, more: tuple[str, ...], allowed: bool) -> None:
    assert Origins(more).allow(origin) is allowed


def test_a_stranger_s_name_is_refused_in_each_api_s_form(client: httpx.Client) -> None:
    evil = {"Host": "evil.example"}
    answer = client.get("/api/tags", headers=evil)
    assert answer.status_code == 403 and "names of this machine" in answer.json()["error"]
    assert client.get("/v1/models", headers=evil).json()["error"]["type"] == "permission_error"
    answer = client.post("/v1/messages", headers=evil, json=CHAT).json()
    assert answer["type"] == "error" and answer["error"]["type"] == "permission_error"
    assert "names of this machine" in client.get("/", headers=evil).text


def test_pages_of_this_machine_read_answers_and_others_do_not(client: httpx.Client) -> None:
    ours = {"Origin": "http://localhost:3000"}
    answer = client.get("/api/tags", headers=ours)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == ours["Origin"]
    assert answer.headers["vary"] == "Origin"
    theirs = {"Origin": "https://evil.example"}
    answer = client.get("/api/tags", headers=theirs)
    assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    same = {"Origin": str(client.base_url).rstrip("/")}
    assert client.get("/api/tags", headers=same).status_code == 200
    # What browsers send without asking leave first:
    answer = client.post(
        "/api/chat", content=b"{}", headers=theirs | {"Content-Type": "text/plain"}
    )
    assert answer.status_code == 403


def test_asking_leave(client: httpx.Client) -> None:
    asked = {
        "Origin": "http://localhost:3000",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-os",
    }
    answer = client.options("/v1/chat/completions", headers=asked)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-headers"] == asked["Access-Control-Request-Headers"]
    assert "POST" in answer.headers["access-control-allow-methods"]
    evil = asked | {"Origin": "https://evil.example"}
    assert client.options("/v1/chat/completions", headers=evil).status_code == 403


def test_a_page_that_hides_whose_it_is(client: httpx.Client) -> None:
    hidden = {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
    assert client.post("/api/chat", content=b"{}", headers=hidden).status_code == 415


def test_curl_needs_no_content_type(client: httpx.Client) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b'{"model": "fake", "stream": false, "messages": [{"role": "user", "content": "hi"}]}'
    assert client.post("/api/chat", content=body, headers=form).status_code == 200


def test_a_key(serving: Any) -> None:
    client = serving(api_key="sesame")
    assert client.get("/").status_code == 200  # only the word that somebody is here
    answer = client.get("/api/tags")
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    for header in (
        {"Authorization": "Bearer sesame"},
        {"authorization": "bearer sesame"},
        {"x-api-key": "sesame"},
        {"Authorization": "Basic " + "OnNlc2FtZQ=="},  # any user, the key as the password
    ):
        assert client.get("/api/tags", headers=header).status_code == 200
    for header in (
        {"Authorization": "Bearer sesam"},
        {"Authorization": "Bearer sesame2"},
        {"Authorization": "sesame"},
        {"Authorization": "Basic !"},
        {"Authorization": "Bearer"},
    ):
        assert client.get("/v1/models", headers=header).status_code == 401
    assert "Basic" in client.get("/srhpm").headers["www-authenticate"]
    # A page may ask for leave without the key, and must have it to ask for more.
    page = {"Origin": "http://localhost:3000"}
    leave = page | {"Access-Control-Request-Method": "POST"}
    assert client.options("/api/chat", headers=leave).status_code == 204
    denied = client.get("/api/tags", headers=page)
    assert denied.status_code == 401
    assert denied.headers["access-control-allow-origin"] == page["Origin"]


def test_beyond_loopback_any_name_will_do_with_the_key(serving: Any) -> None:
    client = serving(host="0.0.0.0", api_key="sesame")
    named = {"Host": "gpu.example.com"}
    assert client.get("/api/tags", headers=named).status_code == 401
    named["Authorization"] = "Bearer sesame"
    assert client.get("/api/tags", headers=named).status_code == 200


def test_long_bodies_are_refused(serving: Any) -> None:
    client = serving(body_limit=1000)
    long = b'{"model": "' + b"x" * 2000 + b'"}'
    assert client.post("/api/chat", content=long).status_code == 413
    assert client.post("/v1/chat/completions", content=long).status_code == 413

    def chunks() -> Iterator[bytes]:  # of no stated length
        for _ in range(20):
            yield b" " * 100

    assert client.post("/v1/chat/completions", content=chunks()).status_code == 413
    assert client.post("/api/chat", content=chunks()).status_code == 413


def test_blobs_may_be_of_any_size(serving: Any) -> None:
    client = serving(body_limit=1000)
    blob = bytes(5000)
    digest = sha256(blob).hexdigest()
    assert client.post(f"/api/blobs/sha256:{digest}", content=blob).status_code == 201


def test_a_fault_of_ours_is_an_error_of_the_api_and_is_reported(parts: Parts) -> None:
    async def broken(request: Request) -> Response:
        raise ZeroDivisionError("by zero")

    app = create_app(parts)
    app.router.routes.insert(0, Route("/api/broken", broken))
    with listening(app) as url:
        answer = httpx.get(url + "/api/broken", trust_env=False)
    assert answer.status_code == 500
    assert answer.json()["error"] == "a fault of ours: ZeroDivisionError: by zero"
    assert "ZeroDivisionError" in parts.stats.troubles()[0].text

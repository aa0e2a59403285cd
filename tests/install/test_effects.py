"""Requests to a host and what takes them back."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from crash import state
from toy_host import ToyHost

from srhpm_plugin.errors import UserError
from srhpm_plugin.host import Tools
from srhpm_plugin.install import effects
from srhpm_plugin.install.operations import Call, Operation, Run, WriteFile
from srhpm_plugin.install.state import records
from srhpm_plugin.install.transaction import Job, install, uninstall

COMMAND = ["uninstall", "--host", "toy"]


class Api:
    """A host's API with names that are made and deleted."""

    def __init__(self) -> None:
        self.names = {"theirs"}
        self.asked: list[str] = []
        self.code: int | None = None
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                api.asked.append(f"{self.command} {body['name']}")
                code = api.code or api.act(self.command, body["name"])
                self.send_response(code)
                if code == 307:
                    self.send_header("Location", self.path)
                self.end_headers()
                self.wfile.write(b"some\nwords")

            do_DELETE = do_POST

            def log_message(self, *args: object) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/name"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def act(self, method: str, name: str) -> int:
        there = name in self.names
        if method == "POST":
            self.names.add(name)
            return 409 if there else 201
        self.names.discard(name)
        return 204 if there else 404

    def call(self, name: str, **more: Any) -> Call:
        body = {"name": name}
        return Call("POST", self.url, body, f"make {name}", "DELETE", self.url, body, **more)


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    yield found
    found.server.shutdown()
    found.server.server_close()


def steps(toy: ToyHost, *operations: Operation) -> None:
    def given(tools: Tools) -> list[Operation]:
        return [WriteFile(toy.root / "ours", b"x"), *operations]

    toy.operations = given


def test_a_request_is_taken_back(toy: ToyHost, job: Callable[..., Job], api: Api) -> None:
    steps(toy, api.call("one"), api.call("two"))
    install(job())
    assert api.names == {"theirs", "one", "two"}
    (record,) = records()
    assert uninstall(record, toy, COMMAND) == ()
    assert api.names == {"theirs"}
    assert api.asked == ["POST one", "POST two", "DELETE two", "DELETE one"]


def test_what_was_refused_is_not_taken_back(
    toy: ToyHost, job: Callable[..., Job], api: Api
) -> None:
    """A name that is taken is somebody else's."""
    before = state(toy.root)
    steps(toy, api.call("one"), api.call("theirs"))
    with pytest.raises(UserError, match=r"make theirs: .* answered 409 some words"):
        install(job())
    assert api.names == {"theirs"}
    assert state(toy.root) == before
    steps(toy, api.call("theirs", required=False))
    assert "not done: make theirs" in install(job()).notes[0]
    (record,) = records()
    uninstall(record, toy, COMMAND)
    assert api.names == {"theirs"}


def test_what_is_gone_needs_no_taking_back(toy: ToyHost, job: Callable[..., Job], api: Api) -> None:
    steps(toy, api.call("one"))
    install(job())
    api.names.discard("one")
    (record,) = records()
    assert uninstall(record, toy, COMMAND) == ()


@pytest.mark.parametrize("required", [True, False])
def test_a_host_that_does_not_answer(
    toy: ToyHost, job: Callable[..., Job], api: Api, required: bool
) -> None:
    """The rest is taken back; the request is when the host answers again. Installing goes on
    without, and remembers it."""
    before = state(toy.root)
    steps(toy, api.call("one", required=required))
    install(job())
    port = api.server.server_port
    api.server.shutdown()
    api.server.server_close()
    (record,) = records()
    with pytest.raises(UserError) as caught:
        uninstall(record, toy, COMMAND)
    assert "not taken back: make one: no answer from" in caught.value.line()
    assert "see that Toy Host runs, then type: srhpm-plugin uninstall" in caught.value.line()
    assert state(toy.root) == before
    steps(toy)
    install(job())
    again = HTTPServer(("127.0.0.1", port), api.server.RequestHandlerClass)
    threading.Thread(target=again.serve_forever, daemon=True).start()
    try:
        (record,) = records()
        assert record.journal is not None
        assert not record.journal.unfinished
        assert uninstall(record, toy, COMMAND) == ()
    finally:
        again.shutdown()
        again.server_close()
    assert api.names == {"theirs"}
    assert state(toy.root) == before
    assert list(records()) == []


def test_redirects_are_not_followed(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://192.0.2.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://192.0.2.1:1")
    api.code = 307
    with pytest.raises(effects.EffectError, match="answered 307"):
        effects.call("POST", api.url, {"name": "x"})
    assert api.asked == ["POST x"]


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:11434/api", True),
        ("http://127.8.8.8/", True),
        ("http://[::1]:80/", True),
        ("https://localhost/", True),
        ("http://localhost.example.com/", False),
        ("http://127.0.0.1.example.com/", False),
        ("http://127.0.0.1@example.com/", False),
        ("http://example.com@127.0.0.1/", False),
        ("http://0.0.0.0/", False),
        ("http://192.168.0.1/", False),
        ("http://2130706433/", False),
        ("file:///etc/passwd", False),
        ("http://", False),
        ("http://[::1", False),
    ],
)
def test_only_this_machine(url: str, local: bool) -> None:
    assert effects.on_loopback(url) == local


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise SystemExit('line one\\nwhy')", "failed: why"),
        ("raise SystemExit(3)", "failed: exit code 3"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
        ("input()", "failed: EOFError"),
    ],
)
def test_commands_that_fail(code: str, words: str) -> None:
    with pytest.raises(effects.EffectError, match=words):
        effects.run([sys.executable, "-c", code], 1.0 if "sleep" in code else 30.0)


def test_arguments_reach_no_shell(toy: ToyHost, job: Callable[..., Job]) -> None:
    hostile = "$(touch pwned); `touch pwned` & | > pwned \"'%PATH%"
    out = toy.root / "said"
    code = f"import sys; open({str(out)!r}, 'w', encoding='utf-8').write(sys.argv[1])"
    steps(toy, Run((sys.executable, "-c", code, hostile), "say it"))
    install(job())
    assert out.read_text("utf-8") == hostile
    (record,) = records()
    uninstall(record, toy, COMMAND)
